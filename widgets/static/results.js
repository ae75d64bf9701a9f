// The results of a query in the browser, after common.js. One message brings the marks or rows that have changed, by id.

const DATA = "results";
const BESIDE = 96; // px of the chart beside its plotting area
const LEAST = 200; // px of the plotting area

/** Draws the items as a chart; the last state that was asked for, one drawing after the other. */
class Chart {
  constructor(root, slot, items) {
    this.root = root;
    this.slot = slot;
    this.items = items;
    this.spec = null;
    this.made = null; // the Vega view, with what it was made for
    this.wanted = false;
    this.working = false;
    this.size = new ResizeObserver(() => this.draw());
    this.size.observe(slot);
  }

  /** Have it drawn: with this specification, if given, and else with the one that it has. */
  draw(spec = null) {
    if (spec) this.spec = spec;
    this.wanted = true;
    this.work();
  }

  async work() {
    if (this.working) return;
    this.working = true;
    try {
      while (this.wanted && this.spec && this.slot.clientWidth) {
        this.wanted = false;
        await this.drawOnce();
      }
    } finally {
      this.working = false;
    }
  }

  async drawOnce() {
    const width = Math.max(this.slot.clientWidth - BESIDE, LEAST);
    const config = theme(this.root);
    const params = [{ name: "ink", value: getComputedStyle(this.root).color }];
    const look = JSON.stringify(config);
    const values = [...this.items.values()].sort((one, other) => one.order - other.order).map((item) => ({ ...item })); // Vega writes into its data
    const { made } = this;
    if (made?.spec === this.spec && made.look === look) { // a look has the colour of the text in it
      made.view.width(width).data(DATA, values);
      await made.view.resize().runAsync();
      return;
    }
    const spec = { ...structuredClone(this.spec), params, width, data: { name: DATA, values } };
    const place = element("div");
    const { view, finalize } = await vegaEmbed(place, spec, { config, actions: false, renderer: "canvas", mode: "vega-lite" });
    made?.finalize();
    this.slot.replaceChildren(place);
    this.made = { view, finalize, spec: this.spec, look };
  }

  clear() {
    this.made?.finalize();
    this.made = null;
    this.spec = null;
  }

  close() {
    this.size.disconnect();
    this.clear();
  }
}

function table(columns, items) {
  const head = element("tr", {}, ...columns.map(([name, right]) => element("th", { scope: "col", class: right ? "qod-right" : "" }, name)));
  const rows = [...items.values()]
    .sort((one, other) => one.order - other.order)
    .map((item) => element("tr", {}, ...item.cells.map((cell, i) => element("td", { class: columns[i][1] ? "qod-right" : "" }, cell))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}

function render({ model, el }) {
  const items = new Map();
  let columns = [];
  let form = null;
  let state = "";
  let gone = false;

  const states = element("span", { class: "qod-facts", role: "status" });
  const pause = element("button", { type: "button", class: "qod-pause", "aria-pressed": "false" }, "pause");
  const slot = element("div", { class: "qod-result", "aria-label": `Results of ${model.get("title")}` });
  const waiting = element("p", { class: "qod-waiting" }, "Reading the first results…");
  const facts = element("ul", { class: "qod-told" });
  const root = element("section", { class: "qod-results", "aria-label": `${model.get("title")}, results` });
  root.append(element("header", {}, element("strong", {}, model.get("title")), states, pause), waiting, slot, facts);
  el.append(root);
  const chart = new Chart(root, slot, items);

  function again() {
    const over = model.get("ended") || gone;
    pause.hidden = over;
    pause.setAttribute("aria-pressed", String(model.get("paused")));
    pause.textContent = model.get("paused") ? "resume" : "pause";
    states.textContent = gone ? "its kernel is gone" : state || (over ? "ended" : model.get("paused") ? "paused" : "live");
  }

  function heard(message) {
    if (message.kind !== "results") return;
    gone = false;
    if (message.fresh) {
      items.clear();
      ({ columns, form } = message);
      slot.setAttribute("role", form === "table" ? "group" : "img");
      slot.classList.toggle("qod-chart", form !== "table");
      if (form === "table") chart.clear();
    }
    for (const id of message.gone) items.delete(id);
    for (const [id, item] of Object.entries(message.items)) items.set(id, item);
    state = message.state;
    waiting.hidden = items.size > 0;
    waiting.textContent = "No rows yet.";
    facts.replaceChildren(...message.facts.map((fact) => element("li", {}, fact)));
    if (form === "table") slot.replaceChildren(table(columns, items));
    else chart.draw(message.spec ?? null);
    again();
  }

  const left = () => {
    gone = true; // until something comes again
    again();
  };
  const turn = () => {
    model.set("paused", !model.get("paused"));
    model.save_changes();
  };
  pause.addEventListener("click", turn);
  model.on("change:paused", again);
  const live = new Live(model, { heard, again, left, themed: () => chart.draw() });
  again();
  return () => {
    model.off("change:paused", again);
    live.close();
    chart.close();
  };
}

export default { render };
