// What the widgets share in the browser. Bundled with `vegaEmbed`, which is in scope. No network.

const SETTLING_MS = [0, 400, 1500]; // after a change of theme: its colours come some time after its name
const AGAIN_MS = [1000, 16000]; // a view says again that it is open until the kernel answers: first after, at most after
const STILL_MS = 60000; // and then each time after, since the kernel forgets views that vanished without a word

const percent = (x) => (x == null ? "–" : `${Math.round(100 * x)} %`);
const number = (x) => (x == null ? "–" : Math.round(x).toLocaleString("en-US"));

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// -- the theme ----------------------------------------------------------------------------------------------------

function theme(el) {
  const style = getComputedStyle(el);
  const ink = style.color;
  const muted = style.getPropertyValue("--qod-muted").trim() || ink;
  const line = style.getPropertyValue("--qod-line").trim() || muted;
  const text = { labelColor: muted, titleColor: muted, titleFontWeight: "normal", labelFontSize: 11, titleFontSize: 11 };
  return {
    background: "transparent",
    padding: { left: 2, right: 16, top: 4, bottom: 2 },
    font: style.fontFamily,
    view: { stroke: "transparent" },
    axis: { ...text, gridColor: line, domainColor: muted, tickColor: muted },
    axisY: { minExtent: 36, maxExtent: 36, domain: false, ticks: false, labelPadding: 5 },
    legend: { ...text, labelColor: ink, columnPadding: 14, rowPadding: 3, offset: 8 },
    header: { labelColor: ink, titleColor: ink, labelFontSize: 12 },
    facet: { spacing: 14 },
  };
}

// -- the life of a view ---------------------------------------------------------------------------------------------

/** From its beginning on, a view hears what the kernel sends, and the kernel hears whether it is open.
 *
 * It says so until it is answered: JupyterLab sends what widgets say to a subshell of the kernel, but to the main shell
 * until that subshell is up, where it waits behind all cells that "Run All" has queued. Once answered, it goes on to say
 * so each minute, until nothing more follows.
 *
 * `heard` gets each message; `again` is called when the model's `ended` has changed, `left` when the kernel is gone, and
 * `themed` once the page has other colours.
 */
class Live {
  constructor(model, { heard, again, left, themed }) {
    this.model = model;
    this.heard = (message) => {
      if (message.fresh) { // it has all that there is to show
        clearTimeout(this.asking);
        this.asking = setTimeout(() => this.ask(STILL_MS), STILL_MS);
      }
      heard(message);
    };
    this.again = again;
    this.left = left;
    this.view = Math.random().toString(36).slice(2);
    this.themes = new MutationObserver(() => SETTLING_MS.forEach((pause) => setTimeout(themed, pause)));
    this.themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
    model.on("msg:custom", this.heard);
    model.on("change:ended", again);
    model.on("comm_live_update", left); // said by the widgets' manager when the kernel began anew, or ended
    this.leave = () => {
      clearTimeout(this.asking);
      this.say("close");
    };
    window.addEventListener("pagehide", this.leave);
    this.ask(AGAIN_MS[0]);
  }

  ask(pause) {
    if (pause === STILL_MS && this.model.get("ended")) return;
    if (!this.say("open")) return;
    const next = pause === STILL_MS ? pause : Math.min(2 * pause, AGAIN_MS[1]);
    this.asking = setTimeout(() => this.ask(next), pause);
  }

  /** Tell the kernel; returns whether that can be done: once another kernel has begun, it can't. */
  say(kind) {
    try {
      this.model.send({ kind, view: this.view });
      return true;
    } catch {
      return false;
    }
  }

  close() {
    window.removeEventListener("pagehide", this.leave);
    this.themes.disconnect();
    this.model.off("msg:custom", this.heard);
    this.model.off("change:ended", this.again);
    this.model.off("comm_live_update", this.left);
    this.leave();
  }
}
