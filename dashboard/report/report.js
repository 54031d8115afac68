// Draws the figures where they come into view, in the colours of the page; offers their numbers; prepares for print.
"use strict";

const CONFIG = {
  displaylogo: false,
  showSendToCloud: false, // an upload
  responsive: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
};
const MOST_ROWS = 200;
// What A4 holds between its margins, and what report.css takes of it in a finding, in CSS pixels.
const PAPER_WIDTH = 680, PAPER_INSET = 16;
// Figures are lower on paper: three with their captions, or two findings, then fit on a page. Those that are high
// because their axes say much keep more of it.
const PAPER_SHARE = { finding: 0.6, usual: 0.7, high: 0.8 }, HIGH = 320;

const root = document.documentElement;
const plots = [...document.querySelectorAll(".plot")];
const button = document.getElementById("mode");
// A finger that moves over a figure scrolls the page.
const dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom";
let figures, Plotly, onPaper = false;

async function unpack(id) {
  const text = document.getElementById(id).textContent;
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

// A copy of a figure in the colours of a mode.
function coloured(figure, mode) {
  const copy = structuredClone({ data: figure.data, layout: figure.layout });
  if (mode === "dark") {
    for (const [path, value] of figure.dark) {
      let part = copy;
      for (const key of path.slice(0, -1)) part = part[key];
      part[path.at(-1)] = value;
    }
  }
  return copy;
}

// What is zoomed or hidden stays so, because the uirevision stays the same.
function draw(plot) {
  const { data, layout } = coloured(figures[plot.dataset.key], onPaper ? "light" : root.dataset.mode);
  const finding = plot.closest(".finding");
  const width = onPaper ? PAPER_WIDTH - (finding ? PAPER_INSET : 0) : plot.clientWidth;
  const share = layout.meta?.rows ? 1 : PAPER_SHARE[finding ? "finding" : layout.height > HIGH ? "high" : "usual"]; // rows hold text
  const height = Math.round(layout.height * (onPaper ? share : 1));
  plot.drawn = true;
  plot.style.minHeight = `${height}px`;
  return Plotly.react(plot, data, { ...layout, uirevision: "kept", dragmode, width, height }, CONFIG);
}

function drawAgain() {
  for (const plot of plots) if (plot.drawn) draw(plot);
}

function setMode(mode) {
  root.dataset.mode = mode;
  button.textContent = mode === "dark" ? "Light colours" : "Dark colours";
  if (figures && !onPaper) drawAgain();
}

// Print: all figures, in light colours, as wide as the paper, seen before or not.
function setPaper(wanted) {
  if (onPaper === wanted || !figures) return;
  onPaper = wanted;
  if (wanted) plots.forEach(draw);
  else drawAgain();
}

// Numbers ------------------------------------------------------------------------------------------------------------

function download(key) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([figures[key].csv], { type: "text/csv" }));
  link.download = `${key}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // some browsers read it only after this function
}

function rowsOf(csv) {
  const rows = [[""]];
  let quoted = false;
  for (let place = 0; place < csv.length && rows.length <= MOST_ROWS + 2; place++) {
    const sign = csv[place], row = rows.at(-1);
    if (sign === '"' && quoted && csv[place + 1] === '"') row[row.length - 1] += csv[++place];
    else if (sign === '"') quoted = !quoted;
    else if (sign === "," && !quoted) row.push("");
    else if (sign === "\n" && !quoted) rows.push([""]);
    else row[row.length - 1] += sign;
  }
  return rows.filter((row) => row.length > 1 || row[0] !== "");
}

function short(text) {
  const value = Number(text);
  return text === "" || Number.isNaN(value) || Number.isInteger(value) ? text : String(Number(value.toPrecision(5)));
}

function tableOf(csv) {
  const [head, ...rows] = rowsOf(csv), table = document.createElement("table");
  const line = (row, cells, kind) => {
    for (const cell of cells) row.appendChild(document.createElement(kind)).textContent = short(cell);
  };
  line(table.createTHead().insertRow(), head, "th");
  const body = table.createTBody();
  for (const cells of rows.slice(0, MOST_ROWS)) line(body.insertRow(), cells, "td");
  return [table, rows.length > MOST_ROWS];
}

// The table below a figure is made when it is first asked for.
function toggle(asked) {
  const place = document.getElementById(asked.getAttribute("aria-controls"));
  place.hidden = !place.hidden;
  asked.setAttribute("aria-expanded", String(!place.hidden));
  if (place.childElementCount) return;
  const [table, cut] = tableOf(figures[asked.dataset.key].csv);
  const scroll = document.createElement("div"), note = document.createElement("p");
  scroll.className = "scroll";
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", asked.getAttribute("aria-label"));
  scroll.append(table);
  note.className = "note";
  const which = cut ? `The first ${MOST_ROWS} rows` : "All rows";
  note.textContent = `${which}, rounded; the CSV has them all in full precision.`;
  place.append(scroll, note);
}

// Contents: the section that is being read is marked, and in sight where the list is longer than the window.
function follow() {
  const nav = document.querySelector("nav");
  const links = new Map([...nav.querySelectorAll("a")].map((link) => [link.hash.slice(1), link]));
  const mark = (link) => {
    for (const other of links.values()) other.removeAttribute("aria-current");
    if (!link) return;
    link.setAttribute("aria-current", "location");
    const place = link.offsetTop - nav.offsetTop;
    if (place < nav.scrollTop || place > nav.scrollTop + nav.clientHeight - 40) nav.scrollTop = place - nav.clientHeight / 2;
  };
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) if (entry.isIntersecting) mark(links.get(entry.target.id));
    },
    { rootMargin: "-20% 0px -70% 0px" },
  );
  for (const section of document.querySelectorAll("main > section")) seen.observe(section);
}

// Figures are drawn where they come into view.
function watch() {
  const inView = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) if (entry.isIntersecting && !entry.target.drawn) draw(entry.target);
    },
    { rootMargin: "400px 0px" },
  );
  for (const plot of plots) {
    plot.style.minHeight = `${figures[plot.dataset.key].layout.height}px`;
    inView.observe(plot);
  }
  let width = innerWidth, waiting;
  addEventListener("resize", () => {
    if (innerWidth === width || onPaper) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAgain, 150);
  });
}

async function start() {
  const dark = matchMedia("(prefers-color-scheme: dark)"), print = matchMedia("print");
  setMode(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => setMode(dark.matches ? "dark" : "light"));
  button.hidden = false;
  button.addEventListener("click", () => setMode(root.dataset.mode === "dark" ? "light" : "dark"));
  follow();

  const [program, contents] = await Promise.all([unpack("plotly"), unpack("figures")]);
  const script = document.createElement("script");
  script.textContent = program;
  document.head.append(script);
  Plotly = window.Plotly;
  figures = JSON.parse(contents);
  watch();
  document.addEventListener("click", (event) => {
    if (event.target.matches(".csv")) download(event.target.dataset.key);
    else if (event.target.matches(".show")) toggle(event.target);
  });
  addEventListener("beforeprint", () => setPaper(true));
  addEventListener("afterprint", () => setPaper(false));
  print.addEventListener("change", () => setPaper(print.matches));
  if (location.hash === "#paper" || print.matches) setPaper(true); // a printing program asks for it: all is drawn before it looks
  root.dataset.ready = "true";
}

start();
