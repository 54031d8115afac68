// Draws a figure with Plotly.react, so that zoom and hidden lines outlive new data, and reports brush, click and keys.

const DOUBLE_CLICK_MS = 300; // as Plotly has it
const LOAD_AGAIN_MS = 3000;
const LEFT_MS = 1000; // what Plotly has under way ends before a chart that was left is taken apart
const SIGN = 6; // pixels of a sign in the title of an axis, with its share of the margins: a longer title is broken
const LINE = 15; // pixels of a line of such a title
const NARROW = 560; // pixels, below which a figure takes the layout that it has for phones

let loading;

function plotly(source) {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = source;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      loading = undefined; // a failure is not kept: whoever asks next loads again
      script.remove();
      reject(new Error("Plotly could not be loaded."));
    };
    document.head.append(script);
  });
  return loading;
}

export default function ({ parentElement, data, setTriggerValue }) {
  const figure = JSON.parse(data.figure);
  let chart = parentElement.querySelector(".ratioscope-plot");
  if (!chart) {
    chart = document.createElement("div");
    chart.className = "ratioscope-plot";
    chart.setAttribute("role", "figure");
    chart.tabIndex = data.events.includes("step") ? 0 : -1;
    parentElement.append(chart);
  }
  clearTimeout(chart.left);
  chart.setAttribute("aria-label", data.alt);
  chart.dataset.events = data.events.join(" ");
  chart.style.height = `${figure.layout.height}px`; // room is kept while Plotly loads
  chart.report = (name, value) => data.events.includes(name) && setTriggerValue(name, value);

  const layout = { uirevision: "kept", ...figure.layout };
  chart.due = chart.asked = { source: data.source, traces: figure.data, layout, config: data.config };
  chart.fitting ??= fitted(chart);
  draw(chart);
  // Streamlit also ends a call that a newer one has overtaken; the chart is the newer one's then.
  const call = (chart.call = {});
  return () => chart.call === call && leave(chart);
}

// The element may be attached, or shown, after Plotly is there: what is due is drawn when the element gets a width.
function fitted(chart) {
  const fitting = new ResizeObserver(() => {
    if (chart.due) draw(chart);
    else if (chart.listening && chart.clientWidth && chart.clientWidth !== chart.layout.width) {
      if (chart.layout.meta?.narrow && chart.clientWidth < NARROW !== chart.layout.width < NARROW) {
        chart.due = chart.asked;
        draw(chart);
      } else window.Plotly.relayout(chart, { width: chart.clientWidth });
    }
  });
  fitting.observe(chart);
  return fitting;
}

function draw(chart) {
  plotly(chart.due.source).then(
    (Plotly) => {
      if (!chart.due || !chart.clientWidth) return;
      const { traces, config } = chart.due;
      const layout = fitting(chart.due.layout, chart.clientWidth);
      chart.style.height = `${layout.height}px`;
      chart.due = null;
      forget(chart);
      Plotly.react(chart, traces, layout, config).then(() => listen(Plotly, chart));
    },
    (error) => {
      console.warn(error.message);
      setTimeout(() => chart.due && draw(chart), LOAD_AGAIN_MS);
    },
  );
}

// What is drawn next has no touched line: Plotly restyles the very traces that it was given, and may be given again.
function forget(chart) {
  if (chart.touched) Object.assign(chart.data[chart.touched.place].line, chart.touched.plain);
  chart.touched = null;
}

// The layout at a width; what a figure has for narrow ones (`meta.narrow`) goes one level deep.
function fitting(wide, width) {
  const layout = structuredClone({ ...wide, width });
  for (const [key, value] of Object.entries((width < NARROW && wide.meta?.narrow) || {})) {
    layout[key] = Array.isArray(value) || typeof value !== "object" ? value : { ...layout[key], ...value };
  }
  const title = layout.xaxis?.title;
  if (title?.text?.length * SIGN > width) {
    const lines = [];
    for (const part of title.text.split(/ (?=\()|(?<=;) /)) {
      const longer = `${lines.at(-1)} ${part}`;
      if (lines.length && longer.length * SIGN <= width) lines[lines.length - 1] = longer;
      else lines.push(part);
    }
    layout.height += LINE * (lines.length - 1);
    title.text = lines.join("<br>");
  }
  return layout;
}

function leave(chart) {
  chart.due = null;
  forget(chart);
  chart.fitting.disconnect();
  chart.fitting = undefined;
  chart.report = () => {};
  chart.left = setTimeout(() => {
    chart.listening?.abort();
    chart.listening = undefined; // purging takes Plotly's listeners away: whoever mounts it again listens anew
    window.Plotly?.purge(chart);
  }, LEFT_MS);
}

function listen(Plotly, chart) {
  if (chart.listening || !chart.fitting) return;
  chart.listening = new AbortController();

  chart.on("plotly_selected", (event) => {
    const range = event?.range?.x;
    if (!range) return;
    Plotly.relayout(chart, { selections: [] }); // the page answers with the new range
    chart.report("brush", [Math.min(...range), Math.max(...range)]);
  });
  // A double click is two clicks, and the second may be reported before or after it: neither opens a step.
  let click, clicked = -Infinity;
  const again = () => {
    const before = clicked;
    clicked = performance.now();
    clearTimeout(click);
    return clicked - before < DOUBLE_CLICK_MS;
  };
  chart.on("plotly_click", (event) => {
    const { x, fullData } = nearest(chart, event);
    const clicked = [x, fullData.meta ?? ""];
    if (!again()) click = setTimeout(() => chart.report("step", clicked), DOUBLE_CLICK_MS);
  });
  const reset = () => {
    again();
    chart.report("reset", true);
  };
  chart.on("plotly_doubleclick", reset);
  chart.on("plotly_deselect", reset); // what a double click is called where a drag selects

  // One cursor for all charts over steps.
  if (chart.dataset.events?.includes("step")) {
    chart.on("plotly_hover", (event) => point(chart, event.xvals?.[0] ?? event.points[0].x));
    chart.on("plotly_unhover", () => point(chart, null));
  }

  // A grey line (`meta` "quiet") is dark for as long as it is touched, or until another figure is drawn.
  const paint = (place, { color, width }) =>
    Plotly.restyle(chart, { "line.color": color, "line.width": width }, [place]);
  const touch = (place) => {
    if (place === (chart.touched?.place ?? null)) return;
    if (chart.touched) paint(chart.touched.place, chart.touched.plain);
    chart.touched = place === null ? null : { place, plain: { ...chart.data[place].line } };
    if (chart.touched) paint(place, { color: chart._fullLayout.font.color, width: 2.5 });
  };
  chart.on("plotly_hover", (event) => {
    if (!chart._fullData.some(({ meta }) => meta === "quiet")) return; // asked anew: figures come and go
    const { fullData } = nearest(chart, event);
    touch(fullData.meta === "quiet" ? fullData.index : null);
  });
  chart.on("plotly_unhover", () => touch(null));

  // Arrow keys go from step to step, Enter is a click.
  let place = null;
  const keys = (event) => {
    const steps = longest(chart);
    if (!steps.length) return;
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const by = event.key === "ArrowRight" ? 1 : -1;
      place = place === null ? (by > 0 ? 0 : steps.length - 1) : Math.min(Math.max(place + by, 0), steps.length - 1);
      Plotly.Fx.hover(chart, { xval: steps[place] });
      event.preventDefault();
    } else if (event.key === "Enter" && place !== null) {
      chart.report("step", [steps[place], ""]);
    }
  };
  chart.addEventListener("keydown", keys, { signal: chart.listening.signal });
}

// A thin line at a step in every other chart over steps; null takes it away.
function point(source, step) {
  for (const chart of document.querySelectorAll(".ratioscope-plot")) {
    const axis = chart._fullLayout?.xaxis;
    if (chart === source || !axis || !chart.dataset.events?.includes("step")) continue;
    let line = chart.querySelector(":scope > .ratioscope-cursor");
    if (!line) {
      line = document.createElement("div");
      line.className = "ratioscope-cursor";
      line.setAttribute("aria-hidden", "true");
      chart.append(line);
    }
    const across = step === null ? NaN : axis.d2p(step);
    line.hidden = !(across >= 0 && across <= axis._length);
    if (line.hidden) continue;
    const { t, h } = chart._fullLayout._size;
    Object.assign(line.style, { left: `${axis._offset + across}px`, top: `${t}px`, height: `${h}px` });
  }
}

// One hover box holds the points of all curves at an x: the one that was clicked is the nearest to the pointer.
function nearest(chart, { event, points }) {
  if (!event) return points[0];
  const pointer = event.clientY - chart.getBoundingClientRect().top;
  const away = ({ y, yaxis }) => Math.abs(yaxis._offset + yaxis.d2p(y) - pointer);
  return points.reduce((least, each) => (away(each) < away(least) ? each : least));
}

function longest(chart) {
  const lines = chart._fullData.filter((trace) => trace.hoverinfo !== "skip" && trace.x?.length);
  return lines.reduce((most, trace) => (trace.x.length > most.length ? trace.x : most), []);
}
