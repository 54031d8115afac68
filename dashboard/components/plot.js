// Draws a figure with Plotly.react, so that zoom and hidden lines outlive new data, and reports brush, click and keys.

const DOUBLE_CLICK_MS = 300; // as Plotly has it
const LOAD_AGAIN_MS = 3000;

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
  chart.setAttribute("aria-label", data.alt);
  chart.style.height = `${figure.layout.height}px`; // room is kept while Plotly loads
  chart.report = (name, value) => data.events.includes(name) && setTriggerValue(name, value);

  const layout = { uirevision: "kept", ...figure.layout };
  chart.due = { source: data.source, traces: figure.data, layout, config: data.config };
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
      window.Plotly.relayout(chart, { width: chart.clientWidth });
    }
  });
  fitting.observe(chart);
  return fitting;
}

function draw(chart) {
  plotly(chart.due.source).then(
    (Plotly) => {
      if (!chart.due || !chart.clientWidth) return;
      const { traces, layout, config } = chart.due;
      chart.due = null;
      layout.width = chart.clientWidth;
      Plotly.react(chart, traces, layout, config).then(() => listen(Plotly, chart));
    },
    (error) => {
      console.warn(error.message);
      setTimeout(() => chart.due && draw(chart), LOAD_AGAIN_MS);
    },
  );
}

function leave(chart) {
  chart.due = null;
  chart.fitting.disconnect();
  chart.fitting = undefined;
  chart.listening?.abort();
  chart.listening = undefined; // purging takes Plotly's listeners away: whoever mounts it again listens anew
  window.Plotly?.purge(chart);
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
  const keys = (event) => {
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
  };
  chart.addEventListener("keydown", keys, { signal: chart.listening.signal });
}

function longest(chart) {
  const lines = chart._fullData.filter((trace) => trace.hoverinfo !== "skip" && trace.x?.length);
  return lines.reduce((most, trace) => (trace.x.length > most.length ? trace.x : most), []);
}
