// Draws the figures where they come into view, in the colours of the page; offers their numbers; prepares for print.
"use strict";

const CONFIG = {
  displaylogo: false,
  showSendToCloud: false, // an upload
  responsive: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
};
const PRINT_WIDTH = 680; // what A4 holds between its margins, in CSS pixels
const MOST_ROWS = 200;

const root = document.documentElement;
const plots = [...document.querySelectorAll(".plot")];
let figures, Plotly;

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

function draw(plot, mode = root.dataset.mode ?? "light", width = plot.clientWidth) {
  const figure = coloured(figures[plot.dataset.key], mode);
  const zoom = plot.drawn && !plot.printed ? { uirevision: "kept" } : {};
  plot.drawn = true;
  plot.style.minHeight = `${figure.layout.height}px`;
  const layout = { uirevision: "kept", ...figure.layout, dragmode: "zoom", width, ...zoom };
  return Plotly.react(plot, figure.data, layout, CONFIG);
}

function drawAgain() {
  for (const plot of plots) if (plot.drawn) draw(plot);
}

function setMode(mode) {
  root.dataset.mode = mode;
  const button = document.getElementById("mode");
  button.textContent = mode === "dark" ? "Light colours" : "Dark colours";
  if (Plotly) drawAgain();
}

// Numbers ------------------------------------------------------------------------------------------------------------

function download(key) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([figures[key].csv], { type: "text/csv" }));
  link.download = `${key}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
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

function fill(details) {
  if (details.childElementCount > 1) return;
  const [head, ...rows] = rowsOf(figures[details.dataset.key].csv);
  const scroll = document.createElement("div"), table = document.createElement("table");
  scroll.className = "scroll";
  const line = (cells, kind) => {
    const row = table.insertRow();
    for (const cell of cells) row.appendChild(document.createElement(kind)).textContent = short(cell);
  };
  line(head, "th");
  for (const row of rows.slice(0, MOST_ROWS)) line(row, "td");
  scroll.append(table);
  details.append(scroll);
  if (rows.length > MOST_ROWS) {
    const note = document.createElement("p");
    note.className = "note";
    note.textContent = `The first ${MOST_ROWS} rows; the CSV has all of them, in full precision.`;
    details.append(note);
  }
}

// Contents: the section that is being read is marked.
function follow() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.classList.remove("here");
        links.get(entry.target.id)?.classList.add("here");
      }
    },
    { rootMargin: "-20% 0px -70% 0px" },
  );
  for (const section of document.querySelectorAll("main > section")) seen.observe(section);
}

// Print: all figures, in light colours, as wide as the paper.
let before;
function toPaper() {
  before = root.dataset.mode;
  root.dataset.mode = "light";
  for (const plot of plots) draw(plot, "light", PRINT_WIDTH);
}

async function start() {
  setMode(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const [program, contents] = await Promise.all([unpack("plotly"), unpack("figures")]);
  const script = document.createElement("script");
  script.textContent = program;
  document.head.append(script);
  Plotly = window.Plotly;
  figures = JSON.parse(contents);

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
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAgain, 150);
  });
  addEventListener("beforeprint", toPaper);
  addEventListener("afterprint", () => {
    setMode(before);
  });
  document.addEventListener("click", (event) => {
    if (event.target.matches(".csv")) download(event.target.dataset.key);
  });
  for (const details of document.querySelectorAll(".numbers")) details.addEventListener("toggle", () => fill(details));
  const button = document.getElementById("mode");
  button.hidden = false;
  button.addEventListener("click", () => setMode(root.dataset.mode === "dark" ? "light" : "dark"));
  follow();
  if (location.hash === "#paper") toPaper(); // a printing program asks for it: every figure is drawn before it looks
  root.dataset.ready = "true";
}

start();
