// The live view in the browser. Bundled with `vegaEmbed`, which is in scope. No network.
// One message brings frames (see state.py); charts keep their data and take in what is new.

const SVG = "http://www.w3.org/2000/svg";
const BOX = { width: 236, height: 112, across: 84, down: 18 };
const LOG_LENGTH = 60;
const CHARTS = [
  ["cpu", "CPU by task manager", "Stacked by task; the dashed line is what there is."],
  ["accuracy", "Accuracy of each query", "Measured, planned, and the least that was asked for."],
  ["throughput", "Rows of each source", "Arriving, and processed after shedding."],
  ["lag", "Lag", "Rows that wait, by source and stream."],
  ["dropped", "Dropped", "Rows dropped since the start, by source and stream."],
];

const percent = (x) => (x == null ? "–" : `${Math.round(100 * x)} %`);
const number = (x) => (x == null ? "–" : Math.round(x).toLocaleString("en-US"));
const clock = (t) => `${Math.floor(t / 60)}:${String(Math.floor(t % 60)).padStart(2, "0")}`;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function shape(tag, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

// -- rows of the charts -------------------------------------------------------------------------------------------

const ROWS = {
  cpu: (f) =>
    f.managers.flatMap((m) =>
      Object.entries(m.tasks).map(([task, cpu], order) => ({ t: f.t, manager: m.id, task, cpu, order, capacity: m.capacity })),
    ),
  accuracy: (f) =>
    f.tasks
      .filter((task) => task.kind === "query")
      .flatMap((task) =>
        [["measured", task.accuracy], ["planned", task.planned], ["minimum", task.minimum]]
          .filter(([, accuracy]) => accuracy != null)
          .map(([kind, accuracy]) => ({ t: f.t, query: task.id, kind, accuracy })),
      ),
  throughput: (f) =>
    f.tasks
      .filter((task) => task.kind === "source")
      .flatMap((task) =>
        [["arriving", task.arriving], ["processed", task.in_rate]]
          .filter(([, rate]) => rate != null)
          .map(([kind, rate]) => ({ t: f.t, source: task.id, kind, rate })),
      ),
  lag: (f) => f.edges.filter((e) => e.lag != null).map((e) => ({ t: f.t, edge: e.name.replace(">", " → "), rows: e.lag })),
  dropped: (f) => f.edges.map((e) => ({ t: f.t, edge: e.name.replace(">", " → "), rows: e.dropped })),
};

// -- the theme ----------------------------------------------------------------------------------------------------

function theme(el) {
  const style = getComputedStyle(el);
  const ink = style.color;
  const muted = style.getPropertyValue("--qod-muted").trim() || ink;
  const line = style.getPropertyValue("--qod-line").trim() || muted;
  const text = { labelColor: muted, titleColor: ink, titleFontWeight: "normal", labelFontSize: 11, titleFontSize: 11 };
  return {
    background: "transparent",
    font: style.fontFamily,
    view: { stroke: "transparent" },
    axis: { ...text, gridColor: line, domainColor: muted, tickColor: muted },
    legend: { ...text, labelColor: ink },
    header: { labelColor: ink, titleColor: ink, labelFontSize: 12 },
    facet: { spacing: 10 },
  };
}

// -- the graph ----------------------------------------------------------------------------------------------------

function depths(frame) {
  const depth = Object.fromEntries(frame.tasks.map((task) => [task.id, 0]));
  for (let round = 0; round < frame.tasks.length; round++) {
    let moved = false;
    for (const e of frame.edges) {
      if (e.from !== null && depth[e.to] < depth[e.from] + 1) [depth[e.to], moved] = [depth[e.from] + 1, true];
    }
    if (!moved) break;
  }
  return depth;
}

function places(frame) {
  const depth = depths(frame);
  const columns = [];
  for (const task of frame.tasks) (columns[depth[task.id]] ??= []).push(task.id);
  const tallest = Math.max(...columns.map((column) => column.length));
  const place = {};
  columns.forEach((column, x) =>
    column.forEach((id, y) => {
      place[id] = {
        x: 92 + x * (BOX.width + BOX.across),
        y: 8 + (y + (tallest - column.length) / 2) * (BOX.height + BOX.down),
      };
    }),
  );
  return { place, width: 100 + columns.length * (BOX.width + BOX.across) - BOX.across, height: 16 + tallest * (BOX.height + BOX.down) - BOX.down };
}

function graph(frame) {
  const { place, width, height } = places(frame);
  const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "qod-graph" });
  picture.append(shape("title", {}, `The application: ${frame.tasks.map((t) => `${t.id} ${t.state}`).join(", ")}`));
  const seen = {};
  for (const edge of frame.edges) {
    const to = place[edge.to];
    const from = edge.from === null ? null : place[edge.from];
    const nth = (seen[edge.to] = (seen[edge.to] ?? -1) + 1);
    const of = frame.edges.filter((e) => e.to === edge.to).length;
    const y2 = to.y + (BOX.height * (nth + 1)) / (of + 1);
    const [x1, y1] = from ? [from.x + BOX.width, from.y + BOX.height / 2] : [to.x - 66, y2];
    const x2 = to.x - 5;
    const bend = (x2 - x1) / 2;
    const shed = edge.d != null && edge.d < 0.9995;
    picture.append(
      shape("path", { d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`, class: shed ? "qod-edge qod-shed" : "qod-edge" }),
      shape("path", { d: `M${x2 - 5},${y2 - 4} l6,4 l-6,4 z`, class: shed ? "qod-tip qod-shed" : "qod-tip" }),
      shape("text", { x: x2 - 9, y: y2 - 6, "text-anchor": "end", class: shed ? "qod-d qod-shed" : "qod-d" }, `d ${edge.d == null ? "–" : edge.d.toFixed(2)}`),
    );
  }
  for (const task of frame.tasks) picture.append(box(task, place[task.id]));
  return picture;
}

function box(task, { x, y }) {
  const group = shape("g", { transform: `translate(${x},${y})`, class: `qod-task qod-attention-${task.attention}` });
  const minimum = task.minimum == null ? "" : ` (min ${percent(task.minimum)})`;
  const out = task.out_rate == null ? "" : ` → ${number(task.out_rate)}`;
  const lines = [
    [task.id, 20, "qod-name"],
    [task.state, 36, "qod-state"],
    [`accuracy ${percent(task.accuracy)} of ${percent(task.planned)}${minimum}`, 56],
    [`${number(task.in_rate)}${out} rows/s`, 72],
    [`CPU ${task.cpu.toFixed(1)} %, lag ${number(task.lag)}`, 88],
    [`${task.where.join(", ") || "nowhere"}${task.modes.length ? `, ${task.modes.join(", ")}` : ""}`, 104, "qod-muted"],
  ];
  group.append(shape("rect", { width: BOX.width, height: BOX.height, rx: 6 }), shape("rect", { width: 5, height: BOX.height, rx: 2, class: "qod-mark" }));
  for (const [text, dy, name] of lines) group.append(shape("text", { x: 14, y: dy, class: name ?? "" }, text));
  if (task.priority != null) group.append(shape("text", { x: BOX.width - 8, y: 20, "text-anchor": "end", class: "qod-muted" }, `priority ${task.priority}`));
  return group;
}

// -- the table, for those who do not see the graph, and for numbers that line up ------------------------------------

const COLUMNS = [
  ["task", (t) => t.id],
  ["state", (t) => t.state],
  ["on", (t) => t.where.join(" ")],
  ["rows/s in", (t) => number(t.in_rate)],
  ["CPU, %", (t) => t.cpu.toFixed(1)],
  ["accuracy", (t) => percent(t.accuracy)],
  ["planned", (t) => percent(t.planned)],
  ["minimum", (t) => percent(t.minimum)],
  ["priority", (t) => t.priority ?? "–"],
  ["lag, rows", (t) => number(t.lag)],
  ["dropped, rows", (t) => number(t.dropped)],
];

function table(frame) {
  const head = element("tr", {}, ...COLUMNS.map(([name]) => element("th", { scope: "col" }, name)));
  const rows = frame.tasks.map((task) =>
    element(
      "tr",
      { class: `qod-attention-${task.attention}` },
      ...COLUMNS.map(([name, cell], i) => element(i ? "td" : "th", i ? {} : { scope: "row" }, String(cell(task)))),
    ),
  );
  return element("table", {}, element("caption", {}, "Tasks in the last cycle"), element("thead", {}, head), element("tbody", {}, ...rows));
}

// -- all together ---------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const view = Math.random().toString(36).slice(2);
  const frames = [];
  const charts = {};
  let specs = null;
  let history_s = 600;
  let embedding = 0;

  const title = element("strong", {}, model.get("title"));
  const facts = element("span", { class: "qod-facts" });
  const states = element("span", { class: "qod-states", role: "status", "aria-live": "polite" });
  const picture = element("div", { class: "qod-picture", tabindex: "0", role: "group", "aria-label": "Graph of the application" });
  const numbers = element("details", { class: "qod-numbers" }, element("summary", {}, "The same in numbers"));
  const slots = Object.fromEntries(
    CHARTS.map(([name, heading, says]) => {
      const slot = element("div", { class: "qod-chart", role: "img", "aria-label": `${heading}. ${says}` });
      return [name, { slot, figure: element("figure", { class: `qod-${name}` }, element("figcaption", {}, heading, element("small", {}, ` ${says}`)), slot) }];
    }),
  );
  const log = element("ol", { class: "qod-log", role: "log", "aria-label": "Decisions, newest first", tabindex: "0" });
  const waiting = element("p", { class: "qod-waiting" }, "Waiting for the first cycle…");
  const root = element(
    "div",
    { class: "qod-dashboard" },
    element("header", {}, title, facts, states),
    waiting,
    picture,
    numbers,
    element("div", { class: "qod-charts" }, ...Object.values(slots).map(({ figure }) => figure)),
    element("section", {}, element("h4", {}, "Decisions, newest first"), log),
  );
  el.append(root);

  const width = () => Math.max((slots.cpu.slot.clientWidth || 420) - 84, 220);

  async function embed() {
    if (!specs) return;
    const round = ++embedding;
    const config = theme(root);
    for (const [name] of CHARTS) {
      const spec = structuredClone(specs[name]);
      (spec.spec ?? spec).width = width();
      spec.data = { name, values: frames.flatMap(ROWS[name]) };
      const options = { config, actions: false, renderer: "canvas", mode: "vega-lite" };
      const made = await vegaEmbed(slots[name].slot, spec, options);
      if (round !== embedding) {
        made.finalize();
        return;
      }
      charts[name]?.finalize();
      charts[name] = made;
    }
  }

  function add(news) {
    const oldest = frames.at(-1).t - history_s;
    const passed = frames.length && frames[0].t < oldest;
    while (frames.length && frames[0].t < oldest) frames.shift();
    for (const [name] of CHARTS) {
      const view = charts[name]?.view;
      if (!view) continue;
      if (passed) view.remove(name, (row) => row.t < oldest).run();
      view.insert(name, news.flatMap(ROWS[name])).resize().runAsync();
    }
  }

  function tell(news) {
    for (const frame of news) {
      for (const entry of frame.log) {
        log.prepend(element("li", { class: `qod-kind-${entry.kind}` }, element("time", {}, clock(frame.t)), element("b", {}, entry.kind), ` ${entry.words}`));
      }
    }
    while (log.childElementCount > LOG_LENGTH) log.lastChild.remove();
    if (!log.childElementCount) log.append(element("li", { class: "qod-none" }, "nothing has been decided yet"));
    else log.querySelector(".qod-none")?.remove();
  }

  function show(frame) {
    waiting.hidden = true;
    facts.textContent = [
      `${clock(frame.t)} since the start`,
      frame.cycle == null ? null : `cycle ${frame.cycle}`,
      frame.phase ? `phase ${frame.phase}` : null,
      frame.applied ? null : "plans are not applied",
      model.get("ended") ? "ended" : null,
    ].filter(Boolean).join(" · ");
    const worst = [...frame.tasks].sort((a, b) => b.attention - a.attention);
    const counts = {};
    for (const task of worst) (counts[task.state] ??= [task.attention, 0])[1]++;
    states.replaceChildren(
      ...Object.entries(counts).map(([state, [attention, count]]) => element("span", { class: `qod-chip qod-attention-${attention}` }, `${count} ${state}`)),
      ...frame.managers.map((m) => element("span", { class: `qod-chip qod-attention-${m.starved ? 3 : 0}` }, `${m.id} ${Math.round(m.cpu)} of ${Math.round(m.capacity)} %${m.starved ? ", starved" : ""}`)),
    );
    picture.replaceChildren(graph(frame));
    numbers.replaceChildren(numbers.firstChild, table(frame));
  }

  function heard(message) {
    if (message.kind !== "frames") return;
    history_s = message.history_s;
    if (message.fresh) {
      frames.length = 0;
      log.replaceChildren();
    }
    frames.push(...message.frames);
    if (message.specs) specs = message.specs;
    if (frames.length) show(frames.at(-1));
    tell(message.frames);
    if (message.fresh) embed();
    else if (message.frames.length) add(message.frames);
  }

  let drawn = 0;
  const resized = new ResizeObserver(() => {
    if (Math.abs(width() - drawn) > 12) {
      drawn = width();
      embed();
    }
  });
  const themed = new MutationObserver(() => embed());
  model.on("msg:custom", heard);
  model.on("change:ended", () => frames.length && show(frames.at(-1)));
  resized.observe(root);
  themed.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
  model.send({ kind: "open", view });
  const close = () => model.send({ kind: "close", view });
  window.addEventListener("pagehide", close);
  return () => {
    window.removeEventListener("pagehide", close);
    close();
    resized.disconnect();
    themed.disconnect();
    model.off("msg:custom", heard);
    for (const chart of Object.values(charts)) chart.finalize();
  };
}

export default { render };
