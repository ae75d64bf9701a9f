// The live view in the browser, after common.js.
// One message brings frames (see frame.py). Graph and numbers follow at once; charts are drawn one after the other, only
// while they are in sight, and with no more rows than make a difference at their size. Another says why a cycle brings
// none: that, and its entries of the log, are shown until the next frame, which has these entries, too.

const SVG = "http://www.w3.org/2000/svg";
const BOX = { width: 236, height: 112, line: 16, across: 84, down: 18 };
const LOG_LENGTH = 60;
const MOST_SLICES = 12; // in the table, the newest
const MOST_ROWS = 2500; // of one chart: above it only each n-th cycle is drawn, and the last
const PATIENCE = 2; // times as long as a chart took to draw, nothing is drawn
const MARGIN = 78; // px of a chart beside its plotting area
const LONGEST = 24; // letters of a name in a box
const LONGEST_LINE = 34; // of a line in small letters
const CHARTS = [
  ["cpu", "CPU by task manager", "Stacked by task; the dashed line is what there is."],
  ["accuracy", "Accuracy of each query", "Measured, planned, and the least that was asked for."],
  ["latency", "Latency of each query", "From a row's arrival to its result, for 95 % of the rows; the dashed line is the target."],
  ["throughput", "Rows of each source", "Arriving, and processed after shedding."],
  ["lag", "Lag", "Rows that wait, by source and stream."],
  ["dropped", "Dropped", "Rows dropped since the start, by source and stream."],
  ["slices", "Results in memory", "Copies of slices of results by task manager, stacked by query."],
];

const IF_KNOWN = ["latency", "slices"]; // charts that are shown once they have rows

const clock = (t) => `${Math.floor(t / 60)}:${String(Math.floor(t % 60)).padStart(2, "0")}`;

function shape(tag, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

const isSource = (frame, id) => frame.tasks.some((task) => task.id === id && task.kind === "source");

/** The task managers that have copies of slices, or could have. */
const holders = (frame) => [...new Set([...frame.managers.map((m) => m.id), ...frame.slices.flatMap((each) => Object.keys(each.mb))])];

/** MB of the copies of slices on a task manager, as far as known. */
const total = (slices, manager) => slices.reduce((sum, each) => sum + (each.mb[manager] ?? 0), 0);

// -- rows of the charts -------------------------------------------------------------------------------------------

const ROWS = {
  cpu: (f) =>
    f.managers.flatMap((m) =>
      Object.entries(m.tasks).map(([task, cpu], order) => ({ t: f.t, manager: m.id, task, cpu, order, capacity: m.capacity })),
    ),
  accuracy: (f) =>
    f.tasks
      .filter((task) => task.minimum != null) // a query, which may be a source as well
      .flatMap((task) =>
        [["measured", task.accuracy], ["planned", task.planned], ["minimum", task.minimum]]
          .filter(([, accuracy]) => accuracy != null)
          .map(([kind, accuracy]) => ({ t: f.t, query: task.id, kind, accuracy })),
      ),
  latency: (f) =>
    f.tasks
      .filter((task) => task.minimum != null)
      .flatMap((task) =>
        [["95 % of the rows", task.p95], ["target", task.target]]
          .filter(([, seconds]) => seconds != null)
          .map(([kind, seconds]) => ({ t: f.t, query: task.id, kind, seconds })),
      ),
  throughput: (f, last) =>
    f.tasks
      .filter((task) => task.kind === "source" && isSource(last, task.id)) // not one that reads another stream by now
      .flatMap((task) =>
        [["arriving", task.arriving], ["processed", task.in_rate]]
          .filter(([, rate]) => rate != null)
          .map(([kind, rate]) => ({ t: f.t, source: task.id, kind, rate })),
      ),
  lag: (f) => f.edges.filter((e) => e.lag != null).map((e) => ({ t: f.t, edge: e.name.replace(">", " → "), rows: e.lag })),
  dropped: (f) => f.edges.map((e) => ({ t: f.t, edge: e.name.replace(">", " → "), rows: e.dropped })),
  slices: (f, last) =>
    f.slices == null
      ? []
      : holders(f).flatMap((manager) =>
          [...new Set([...f.slices, ...(last.slices ?? [])].map((each) => each.query))].map((query) => {
            const mine = f.slices.filter((each) => each.query === query && manager in each.mb);
            return { t: f.t, manager, query, copies: mine.length, mb: total(mine, manager) };
          }),
        ),
};

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

/** All boxes are higher by a line where a task has streams within it. */
const boxHeight = (frame) => BOX.height + (frame.tasks.some((task) => task.fused?.length) ? BOX.line : 0);

function places(frame) {
  const high = boxHeight(frame);
  const depth = depths(frame);
  const columns = [];
  for (const task of frame.tasks) (columns[depth[task.id]] ??= []).push(task.id);
  const tallest = Math.max(...columns.map((column) => column.length));
  const place = {};
  columns.forEach((column, x) =>
    column.forEach((id, y) => {
      place[id] = {
        x: 92 + x * (BOX.width + BOX.across),
        y: 8 + (y + (tallest - column.length) / 2) * (high + BOX.down),
      };
    }),
  );
  return { place, high, width: 100 + columns.length * (BOX.width + BOX.across) - BOX.across, height: 16 + tallest * (high + BOX.down) - BOX.down };
}

function graph(frame) {
  const { place, high, width, height } = places(frame);
  const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "qod-graph", style: `min-width: ${Math.round(0.72 * width)}px` });
  picture.setAttribute("aria-label", `The application: ${frame.tasks.map((t) => `${t.id} ${t.state}`).join(", ")}`);
  const seen = {};
  const labels = [];
  for (const edge of frame.edges) {
    const to = place[edge.to];
    const from = edge.from === null ? null : place[edge.from];
    const nth = (seen[edge.to] = (seen[edge.to] ?? -1) + 1);
    const of = frame.edges.filter((e) => e.to === edge.to).length;
    const y2 = to.y + (high * (nth + 1)) / (of + 1);
    const [x1, y1] = from ? [from.x + BOX.width, from.y + high / 2] : [to.x - 66, y2];
    const x2 = to.x - 5;
    const bend = (x2 - x1) / 2;
    const shed = edge.d != null && edge.d < 0.9995;
    picture.append(
      shape("path", { d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`, class: shed ? "qod-edge qod-shed" : "qod-edge" }),
      shape("path", { d: `M${x2 - 5},${y2 - 4} l6,4 l-6,4 z`, class: shed ? "qod-tip qod-shed" : "qod-tip" }),
    );
    labels.push(
      shape("text", { x: x2 - 9, y: y2 - 6, "text-anchor": "end", class: shed ? "qod-d qod-shed" : "qod-d" }, `d ${edge.d == null ? "–" : edge.d.toFixed(2)}`),
    );
  }
  picture.append(...labels); // over all lines
  for (const task of frame.tasks) picture.append(box(task, place[task.id], high));
  return picture;
}

const short = (words, longest = LONGEST) => (words.length > longest ? `${words.slice(0, longest - 1)}…` : words);
const limit = (task) => (task.max_parallelism == null ? "" : ` (max ${task.max_parallelism})`);

function instances(task) {
  const count = Object.keys(task.instances).length;
  return `${count} instance${count === 1 ? "" : "s"}${limit(task)}`;
}

/** The streams within a task, "a>b" and "b>c", as "a → b → c"; "" without any. */
function within(task) {
  const chains = [];
  for (const [from, to] of (task.fused ?? []).map((stream) => stream.split(">"))) {
    const before = chains.find((chain) => chain.at(-1) === from);
    if (before) before.push(to);
    else chains.push([from, to]);
  }
  return chains.map((chain) => chain.join(" → ")).join(", ");
}

function box(task, { x, y }, high) {
  const group = shape("g", { transform: `translate(${x},${y})`, class: `qod-task qod-attention-${task.attention}` });
  const minimum = task.minimum == null ? "" : ` (min ${percent(task.minimum)})`;
  const out = task.out_rate == null ? "" : ` → ${number(task.out_rate)}`;
  const lines = [
    [short(task.id), 20, "qod-name"],
    [task.state, 36, "qod-state"],
    [`accuracy ${percent(task.accuracy)} of ${percent(task.planned)}${minimum}`, 56],
    [`${number(task.in_rate)}${out} rows/s`, 72],
    [`CPU ${task.cpu.toFixed(1)} %, lag ${number(task.lag)}`, 88],
    [`${task.where.join(", ") || "nowhere"}${task.modes.length ? `, ${task.modes.join(", ")}` : ""}`, 104, "qod-muted"],
  ];
  const fused = within(task);
  if (fused) lines.push([short(`one query: ${fused}`, LONGEST_LINE), 120, "qod-muted qod-within"]);
  const told = (fused ? `\none query: ${fused}` : "") + (task.labels ? `\nwhen rows are dropped: ${task.labels}` : "");
  group.append(shape("title", {}, `${task.id}: ${task.state}${told}`), shape("rect", { width: BOX.width, height: high, rx: 6 }), shape("rect", { width: 5, height: high, rx: 2, class: "qod-mark" }));
  for (const [text, dy, name] of lines) group.append(shape("text", { x: 14, y: dy, class: name ?? "" }, text));
  if (task.priority != null) group.append(shape("text", { x: BOX.width - 8, y: 20, "text-anchor": "end", class: "qod-muted" }, `priority ${task.priority}`));
  group.append(shape("text", { x: BOX.width - 8, y: 36, "text-anchor": "end", class: "qod-muted qod-instances" }, instances(task)));
  return group;
}

// -- the table, for those who do not see the graph, and for numbers that line up ------------------------------------

const COLUMNS = [
  ["task", (t) => t.id],
  ["state", (t) => t.state],
  ["on", (t) => t.where.join(" ")],
  ["instances", (t) => `${Object.keys(t.instances).length}${limit(t)}`],
  ["rows/s in", (t) => number(t.in_rate)],
  ["CPU, %", (t) => t.cpu.toFixed(1)],
  ["accuracy", (t) => percent(t.accuracy)],
  ["planned", (t) => percent(t.planned)],
  ["minimum", (t) => percent(t.minimum)],
  ["priority", (t) => t.priority ?? "–"],
  ["lag, rows", (t) => number(t.lag)],
  ["dropped, rows", (t) => number(t.dropped)],
];
/** Rows that are in no result though no shedder dropped them, and rows read twice: each kind is shown once there is one. */
const LOST = ["late", "malformed", "tombstones", "implausible", "read_again", "sent_again"].map((kind) => [kind, [`${kind.replace("_", " ")}, rows`, (t) => number(t[kind] ?? 0) + (kind === "late" && t.late ? "+" : "")]]);
const LATENCIES = [
  ["p50", (t) => duration(t.p50)],
  ["p95", (t) => duration(t.p95)],
  ["target", (t) => duration(t.target)],
  ["oldest", (t) => duration(t.oldest)],
];

/** Seconds as "35 ms" or "1.25 s". */
const duration = (s) => (s == null ? "–" : s < 0.9995 ? `${(1000 * s).toFixed(0)} ms` : `${s.toFixed(s < 9.995 ? 2 : 0)} s`);

function table(frame) {
  const timed = frame.tasks.some((task) => task.p95 != null || task.oldest != null || task.target != null);
  const columns = [...COLUMNS, ...(timed ? LATENCIES : []), ...LOST.filter(([kind]) => frame.tasks.some((task) => task[kind])).map(([, column]) => column)];
  const head = element("tr", {}, ...columns.map(([name]) => element("th", { scope: "col" }, name)));
  const rows = frame.tasks.map((task) =>
    element(
      "tr",
      { class: `qod-attention-${task.attention}` },
      ...columns.map(([name, cell], i) => element(i ? "td" : "th", i ? {} : { scope: "row" }, String(cell(task)))),
    ),
  );
  return element("table", {}, element("caption", {}, "Tasks in the last cycle"), element("thead", {}, head), element("tbody", {}, ...rows));
}

/** Which task managers have copies of which slices of results, newest first, and what they take there. */
function copies(frame) {
  const managers = holders(frame);
  const head = element("tr", {}, ...["query", "written", "copies", ...managers].map((name) => element("th", { scope: "col" }, name)));
  const size = (each, manager) => (manager in each.mb ? (each.mb[manager] == null ? "loading" : `${each.mb[manager].toFixed(2)} MB`) : "–");
  const rows = frame.slices.slice(-MOST_SLICES).reverse().map((each) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, each.query),
      ...[each.written, String(Object.keys(each.mb).length), ...managers.map((m) => size(each, m))].map((text) => element("td", {}, text)),
    ),
  );
  const older = frame.slices.length - rows.length;
  const all = frame.slices.reduce((sum, each) => sum + Object.keys(each.mb).length, 0);
  const sums = managers.map((m) => {
    const mine = frame.slices.filter((each) => m in each.mb);
    return `${mine.length} · ${total(mine, m).toFixed(2)} MB`;
  });
  const foot = ["in all", older > 0 ? `${older} older` : "", String(all), ...sums];
  return element(
    "table",
    {},
    element("caption", {}, "Slices of results in memory: of each its copies, and the MB of these"),
    element("thead", {}, head),
    element("tbody", {}, ...rows),
    element("tfoot", {}, element("tr", {}, ...foot.map((text, i) => element(i ? "td" : "th", i ? {} : { scope: "row" }, text)))),
  );
}

/** Words on some of the tasks, under a heading; nothing where there are none. */
function terms(frame, heading, name, words) {
  const told = frame.tasks.filter((task) => words(task)).flatMap((task) => [element("dt", {}, task.id), element("dd", {}, words(task))]);
  return told.length ? [element("p", { class: "qod-muted" }, heading), element("dl", { class: `qod-terms ${name}` }, ...told)] : [];
}

/** What late rows did to the results of a task. There may be more: Spark counts those of one group once. */
const late = (task) => task.late && `${number(task.late)} or more came too late: they are in no result, whose sums and counts lack them`;

const details = (frame) => [
  table(frame),
  ...terms(frame, "Streams within a task, which is one query", "qod-fused", within),
  ...terms(frame, "Results when rows are dropped", "qod-labels", (task) => task.labels), // where the session has told
  ...terms(frame, "Rows behind the watermark", "qod-late", late),
];

// -- the charts -----------------------------------------------------------------------------------------------------

/** Draws what is in sight, one chart at a time; `frames` is what they show. */
class Charts {
  constructor(root, frames) {
    this.root = root;
    this.frames = frames;
    this.specs = null;
    this.wanted = new Set();
    this.seen = new Set();
    this.drawn = {};
    this.working = false;
    this.slots = {};
    this.figures = CHARTS.map(([name, heading, says]) => {
      const slot = element("div", { class: "qod-chart", role: "img", "aria-label": `${heading}. ${says}`, "data-chart": name });
      this.slots[name] = slot;
      return element("figure", { class: `qod-${name}` }, element("figcaption", {}, heading, element("small", {}, ` ${says}`)), slot);
    });
    const inSight = (entries) => {
      for (const { target, isIntersecting } of entries) this.seen[isIntersecting ? "add" : "delete"](target.dataset.chart);
      this.work();
    };
    this.sight = new IntersectionObserver(inSight, { rootMargin: "150px" });
    this.size = new ResizeObserver(() => this.draw());
    for (const slot of Object.values(this.slots)) this.sight.observe(slot);
    this.size.observe(root);
  }

  /** Have charts drawn: with these specifications, if given, and else with those that they have. */
  draw(specs = null) {
    if (specs) this.specs = specs;
    for (const [name] of CHARTS) this.wanted.add(name);
    for (const name of IF_KNOWN) this.slots[name].parentElement.hidden = !this.rows(name).length;
    this.work();
  }

  async work() {
    if (this.working || !this.specs) return;
    this.working = true;
    try {
      for (;;) {
        const next = CHARTS.find(([name]) => this.wanted.has(name) && this.seen.has(name) && this.slots[name].clientWidth);
        if (!next) break;
        this.wanted.delete(next[0]);
        const began = performance.now();
        const isNew = await this.drawOne(next[0]);
        // what was drawn is shown before the next; large charts leave the page time for all else
        await new Promise((done) => setTimeout(done, isNew ? 0 : PATIENCE * (performance.now() - began)));
      }
    } finally {
      this.working = false;
    }
  }

  async drawOne(name) {
    const slot = this.slots[name];
    const width = Math.max(slot.clientWidth - MARGIN, 160);
    const config = theme(this.root);
    const look = JSON.stringify(config);
    const old = this.drawn[name];
    if (old?.specs === this.specs && old.look === look) {
      if (old.width !== width) old.view.signal(old.widthName, (old.width = width));
      old.view.data(name, this.rows(name));
      await old.view.resize().runAsync();
      return false;
    }
    const spec = structuredClone(this.specs[name]);
    (spec.spec ?? spec).width = width;
    spec.data = { name, values: this.rows(name) };
    const place = element("div");
    const made = await vegaEmbed(place, spec, { config, actions: false, renderer: "canvas", mode: "vega-lite" });
    old?.finalize();
    slot.replaceChildren(place);
    const { view, finalize } = made;
    this.drawn[name] = { view, finalize, specs: this.specs, look, width, widthName: spec.spec ? "child_width" : "width" };
    const scrolls = slot.scrollHeight > slot.clientHeight + 1;
    slot[scrolls ? "setAttribute" : "removeAttribute"]("tabindex", "0");
    return true;
  }

  rows(name) {
    const last = this.frames.at(-1);
    if (!last) return [];
    const nth = Math.max(1, Math.ceil((this.frames.length * ROWS[name](last, last).length) / MOST_ROWS));
    return this.frames.filter((frame) => frame.nth % nth === 0 || frame === last).flatMap((frame) => ROWS[name](frame, last));
  }

  close() {
    this.sight.disconnect();
    this.size.disconnect();
    this.specs = null;
    for (const { finalize } of Object.values(this.drawn)) finalize();
  }
}

// -- all together ---------------------------------------------------------------------------------------------------

function chips(frame) {
  const counts = {};
  for (const task of [...frame.tasks].sort((a, b) => b.attention - a.attention)) {
    (counts[task.state] ??= [task.attention, 0])[1]++;
  }
  return Object.entries(counts).map(([state, [attention, count]]) => chip(`${count} ${state}`, attention));
}

const chip = (text, attention) => element("span", { class: `qod-chip qod-attention-${attention}` }, text);

function load(manager) {
  const words = `${manager.id} ${Math.round(manager.cpu)} of ${Math.round(manager.capacity)} %`;
  return chip(manager.starved ? `${words}, starved` : words, manager.starved ? 3 : 0);
}

/** A task manager that joins, stands by or leaves. */
const changing = ([id, state]) => chip(`${id} ${state}`, state === "standby" ? 0 : 1);

/** What a stage of the policy does, or why it does nothing. */
function stage({ stage: name, words, paused, idle }) {
  return element("li", {}, element("b", {}, name), paused ? chip(words, 1) : element("span", idle ? { class: "qod-muted" } : {}, words));
}

function entry(frame, { t, kind, words }) {
  return element("li", { class: `qod-kind-${kind}` }, element("time", {}, clock(t ?? frame.t)), element("b", {}, kind), ` ${words}`);
}

function render({ model, el }) {
  const frames = [];
  let count = 0;
  let gone = false;
  let skipped = null; // why there has been no frame since the last
  const since = new Map(); // entries that are shown until the next frame, by what they say

  const title = element("strong", {}, model.get("title"));
  const facts = element("span", { class: "qod-facts" });
  const states = element("span", { class: "qod-states", role: "status" });
  const loads = element("span", { class: "qod-states" });
  const picture = element("div", { class: "qod-picture", tabindex: "0", role: "group", "aria-label": "Graph of the application" });
  const numbers = element("details", { class: "qod-numbers" }, element("summary", {}, "The same in numbers"));
  const entries = element("ol", {});
  const stages = element("ul", { class: "qod-stages", role: "list", "aria-label": "Stages of the policy, in the last cycle" });
  const slices = element("div", { class: "qod-copies", hidden: "" });
  const staged = element("div", { hidden: "" }, element("h4", {}, "Stages of the policy, in the last cycle"), stages);
  const log = element("div", { class: "qod-log", role: "log", "aria-label": "Decisions, newest first", tabindex: "0" }, entries);
  const waiting = element("p", { class: "qod-waiting" }, "Waiting for the first cycle…");
  const notice = element("p", { class: "qod-notice", role: "status", hidden: "" });
  const root = element("section", { class: "qod-dashboard", "aria-label": model.get("title") || "Dashboard" });
  const charts = new Charts(root, frames);
  root.append(
    element("header", {}, title, facts, element("span", { class: "qod-chips" }, states, loads)),
    waiting,
    notice,
    picture,
    numbers,
    element("div", { class: "qod-charts" }, ...charts.figures),
    slices,
    staged,
    element("h4", {}, "Decisions, newest first"),
    log,
  );
  el.append(root);

  function tell(items) {
    for (const each of items) entries.prepend(each);
    while (entries.childElementCount > LOG_LENGTH) entries.lastChild.remove();
    if (!entries.childElementCount) entries.append(element("li", { class: "qod-none" }, "nothing has been decided yet"));
    else if (entries.childElementCount > 1) entries.querySelector(".qod-none")?.remove();
  }

  /** Say why nothing is newer than the last frame, if so. */
  function stand() {
    notice.hidden = !skipped;
    root.classList.toggle("qod-stale", Boolean(skipped));
    if (!skipped) return;
    waiting.hidden = true;
    const last = frames.at(-1);
    const words = `Nothing is measured and decided${last ? ` since ${clock(last.t)}` : ""}: ${skipped.words}`;
    if (notice.textContent !== words) notice.textContent = words; // read out once
  }

  function show(frame) {
    waiting.hidden = true;
    facts.textContent = [
      `${clock(frame.t)} since the start`,
      frame.cycle == null ? null : `cycle ${frame.cycle}`,
      frame.phase ? `phase ${frame.phase}` : null,
      frame.applied ? null : "plans are not applied",
      model.get("ended") ? "ended" : gone ? "its kernel is gone" : null,
    ].filter(Boolean).join(" · ");
    const now = skipped ? [chip("nothing is measured", 3)] : chips(frame);
    if (now.map((each) => each.textContent).join() !== [...states.children].map((each) => each.textContent).join()) {
      states.replaceChildren(...now); // read out by screen readers: only when it is another
    }
    loads.replaceChildren(...(skipped ? [] : [...frame.managers.map(load), ...Object.entries(frame.nodes ?? {}).map(changing)]));
    picture.replaceChildren(graph(frame));
    stages.replaceChildren(...(frame.stages ?? []).map(stage));
    staged.hidden = !stages.childElementCount;
    slices.hidden = frame.slices == null;
    if (frame.slices != null) slices.replaceChildren(element("h4", {}, "Results in memory, in the last cycle"), copies(frame));
    if (numbers.open) numbers.replaceChildren(numbers.firstChild, ...details(frame));
  }

  function heard(message) {
    if (message.kind !== "frames" && message.kind !== "skipped") return;
    gone = false;
    skipped = message.kind === "skipped" ? message : null;
    if (skipped) {
      const news = skipped.log.map((each) => [JSON.stringify(each), entry(skipped, each)]).filter(([said]) => !since.has(said));
      for (const [said, shown] of news) since.set(said, shown);
      tell(news.map(([, shown]) => shown));
      stand();
      again();
      return;
    }
    for (const each of since.values()) each.remove();
    since.clear();
    if (message.fresh) {
      frames.length = 0;
      entries.replaceChildren();
    }
    for (const frame of message.frames) frames.push({ ...frame, nth: count++ });
    stand();
    if (!frames.length) return;
    const last = frames.at(-1);
    while (frames[0].t < last.t - message.history_s) frames.shift();
    show(last);
    tell(message.frames.flatMap((frame) => frame.log.map((each) => entry(frame, each))));
    charts.draw(message.specs);
  }

  const again = () => frames.length && show(frames.at(-1));
  const left = () => {
    gone = true; // until something comes again
    again();
  };
  numbers.addEventListener("toggle", again);
  const live = new Live(model, { heard, again, left, themed: () => charts.draw() });
  return () => {
    live.close();
    charts.close();
  };
}

export default { render };
