// Draws a figure with Plotly.react, so that zoom and hidden lines outlive new data, and reports brush, click and keys.

const DOUBLE_CLICK_MS = 300; // as Plotly has it

let loading;

function plotly(source) {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = source;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("Plotly could not be loaded."));
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
  chart.setAttribute("aria-label", data.alt);
  chart.style.height = `${figure.layout.height}px`; // room is kept while Plotly loads
  chart.report = (name, value) => data.events.includes(name) && setTriggerValue(name, value);

  const layout = { uirevision: "kept", ...figure.layout };
  plotly(data.source).then((Plotly) => {
    if (!chart.isConnected) return;
    layout.width = chart.clientWidth;
    Plotly.react(chart, figure.data, layout, data.config).then(() => watch(Plotly, chart));
  });
  return () => window.Plotly?.purge(chart);
}

function watch(Plotly, chart) {
  if (chart.watched) return;
  chart.watched = true;

  chart.on("plotly_selected", (event) => {
    const range = event?.range?.x;
    if (!range) return;
    Plotly.relayout(chart, { selections: [] }); // the page answers with the new range
    chart.report("brush", [Math.min(...range), Math.max(...range)]);
  });
  // A double click begins as a click: wait for the second one before a step is opened.
  let click;
  chart.on("plotly_click", (event) => {
    clearTimeout(click);
    click = setTimeout(() => chart.report("step", event.points[0].x), DOUBLE_CLICK_MS);
  });
  const reset = () => {
    clearTimeout(click);
    chart.report("reset", true);
  };
  chart.on("plotly_doubleclick", reset);
  chart.on("plotly_deselect", reset); // what a double click is called where a drag selects

  // Arrow keys go from step to step, Enter is a click.
  let place = null;
  chart.addEventListener("keydown", (event) => {
    const steps = longest(chart);
    if (!steps.length) return;
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const by = event.key === "ArrowRight" ? 1 : -1;
      place = place === null ? (by > 0 ? 0 : steps.length - 1) : Math.min(Math.max(place + by, 0), steps.length - 1);
      Plotly.Fx.hover(chart, { xval: steps[place] });
      event.preventDefault();
    } else if (event.key === "Enter" && place !== null) {
      chart.report("step", steps[place]);
    }
  });

  new ResizeObserver(() => {
    if (chart.clientWidth && chart.clientWidth !== chart.layout.width) {
      Plotly.relayout(chart, { width: chart.clientWidth });
    }
  }).observe(chart);
}

function longest(chart) {
  const lines = chart._fullData.filter((trace) => trace.hoverinfo !== "skip" && trace.x?.length);
  return lines.reduce((most, trace) => (trace.x.length > most.length ? trace.x : most), []);
}
