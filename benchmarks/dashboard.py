"""What the dashboard costs: CPU of the kernel while it is fed, and time in the browser from a message to its rendering.

The browser shows the widget's code alone, without JupyterLab: `first` is from the code's start to the first chart,
`tick` from one message to the end of all work that it triggers, with the given history.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import psutil
from jupyter_client import KernelManager

from qod_magics.notebook.replies import FROM_THE_START
from qod_widgets.dashboard import HISTORY_S
from qod_widgets.live_charts import specs
from qod_widgets.watched import bundle

ROOT = Path(__file__).parents[1]
STYLE = ROOT / "widgets" / "static" / "dashboard.css"

#: In the kernel: feeds frames at 1 Hz, each with new probabilities for all shedders, to the dashboard and to the
#: controls; the frames are made beforehand, as a controller's cycle would.
FEED = """
import sys, threading, time
sys.path.insert(0, {here!r})
from dashboard import frame
from qod_widgets.controls import Commands, Panel
from qod_widgets.dashboard import Dashboard
dashboard, panel = Dashboard("fed"), Panel(None, Commands())
frames = [frame(float(second), {tasks}) for second in range(600)]
for each in frames[:-60]:
    dashboard.feed(each)
def feed():
    for each in frames[-60:]:
        time.sleep(1.0)
        dashboard.feed(each)
        panel.update(each, 1.0, False)
def begin():
    threading.Thread(target=feed, daemon=True).start()
"""

#: In the page: a model like the notebook's, and the time until all work that a message triggers is done.
PAGE = """
<!doctype html><style>%s body { width: 1000px }</style><div id="here"></div>
<script type="module">
const heard = {};
const model = { get: (key) => ({ title: "benchmark", ended: false })[key], on: (what, f) => { heard[what] = f; },
                off() {}, send() {} };
const { default: widget } = await import(URL.createObjectURL(
  new Blob([document.querySelector("#code").textContent], { type: "text/javascript" })));
const here = document.querySelector("#here");
widget.render({ model, el: here });
const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
const quiet = async () => { // no chart is drawn any more: its macrotasks leave the queue in between
  for (let still = 0; still < 3; still++) { await frames(); await new Promise((done) => setTimeout(done)); }
};
window.first = async (message) => {
  const began = performance.now();
  heard["msg:custom"](message);
  while (!here.querySelector("canvas")) await new Promise((done) => setTimeout(done, 2));
  const took = performance.now() - began;
  while (here.querySelectorAll("canvas").length < 5) await frames();
  await quiet();
  return took;
};
let busy = 0;
new PerformanceObserver((list) => { for (const each of list.getEntries()) busy += each.duration; })
  .observe({ type: "longtask", buffered: false });
window.tick = async (message) => {
  busy = 0;
  const began = performance.now();
  heard["msg:custom"](message);
  const shown = performance.now() - began;
  await new Promise((done) => setTimeout(done, 1500));
  return [shown, busy];
};
window.ready = true;
</script>
"""


def frame(t: float, tasks: int) -> dict[str, Any]:
    """A frame of `tasks` tasks: a tenth of them sources, four tenths in between, each read by one; two managers."""
    sources, middles = max(tasks // 10, 1), max(4 * tasks // 10, 1)
    wobble = (t * 7919 % 100) / 100
    names = [f"T{i}" for i in range(tasks)]
    made = [_task(i, name, wobble, sources, middles) for i, name in enumerate(names)]
    pairs = [(None, name) for name in names[:sources]]
    pairs += [(names[i - middles if i >= sources + middles else i % sources], names[i]) for i in range(sources, tasks)]
    edges = [
        {
            "name": to if source is None else f"{source}>{to}",
            "from": source,
            "to": to,
            "d": 0.5 + 0.5 * wobble,
            "rate": 900 + 100 * wobble,
            "lag": int(1000 * wobble),
            "dropped": int(10 * t),
        }
        for source, to in pairs
    ]
    managers = [_manager(id, names[half::2], wobble) for half, id in enumerate(("tm1", "tm2"))]
    return {
        "t": t,
        "at": "2026-01-01T00:00:00+00:00",
        "cycle": int(t),
        "period_s": 1.0,
        "phase": "overload",
        "applied": True,
        "warming_up": False,
        "managers": managers,
        "tasks": made,
        "edges": edges,
        "log": [{"at": "", "kind": "shedding", "words": "T9 sheds more: from 0.80 to 0.70 of its input"}],
    }


def _task(index: int, name: str, wobble: float, sources: int, middles: int) -> dict[str, Any]:
    kind = "source" if index < sources else "task" if index < sources + middles else "query"
    query = kind == "query"
    return {
        "id": name,
        "kind": kind,
        "accuracy": 0.5 + 0.5 * wobble,
        "planned": 0.75,
        "minimum": 0.4 if query else None,
        "priority": 1 if query else None,
        "in_rate": 500 + 500 * wobble,
        "out_rate": None if query else 500.0,
        "arriving": 1000.0 if kind == "source" else None,
        "cpu": 3 + wobble,
        "lag": 10,
        "dropped": 10,
        "modes": ["real-time"],
        "where": [f"tm{1 + index % 2}"],
        "instances": {f"{name}.1": f"tm{1 + index % 2}"},
        "state": "shedding",
        "attention": 1,
    }


def _manager(id: str, tasks: list[str], wobble: float) -> dict[str, Any]:
    used = {name: round(90 / max(len(tasks), 1) * (0.5 + wobble / 2), 2) for name in tasks}
    return {"id": id, "capacity": 90.0, "cpu": 95.0, "tasks": {**used, "other processes": 5.0}, "starved": False}


def kernel_cpu(tasks: int, seconds: float) -> tuple[float, float]:
    """% of one core that a kernel with an open view uses: idle, and while it is fed at 1 Hz."""
    manager = KernelManager()
    manager.start_kernel(env={**os.environ, "PYTHONPATH": str(ROOT)}, extra_arguments=[FROM_THE_START])
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        client.execute(FEED.format(here=str(Path(__file__).parent), tasks=tasks))
        comm = _comm(client)
        content = {"method": "custom", "content": {"kind": "open", "view": "a"}}
        client.shell_channel.send(client.session.msg("comm_msg", {"comm_id": comm, "data": content}))
        process = psutil.Process(manager.provisioner.pid)
        time.sleep(2)
        idle = _used(process, seconds)
        client.execute_interactive("begin()", timeout=30)
        fed = _used(process, seconds)
        sent = _messages(client)
        if sent < 0.8 * seconds:
            raise RuntimeError(f"the dashboard sent {sent} messages in {seconds:g} s, not one a second")
        return idle, fed
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _comm(client: Any) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            message = client.get_iopub_msg(timeout=1)
        except queue.Empty:
            continue
        if message["msg_type"] == "comm_open" and "_esm" in message["content"]["data"]["state"]:
            comm: str = message["content"]["comm_id"]
            return comm
    raise RuntimeError("the kernel opened no dashboard within 60 s")


def _messages(client: Any) -> int:
    """Number of a dashboard's messages in the queue."""
    found = 0
    while True:
        try:
            message = client.get_iopub_msg(timeout=0.2)
        except queue.Empty:
            return found
        found += message["msg_type"] == "comm_msg" and message["content"]["data"].get("method") == "custom"


def _used(process: psutil.Process, seconds: float) -> float:
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after = process.cpu_times()
    spent = max(after.user + after.system - before.user - before.system, 0.0)
    return 100 * spent / (time.monotonic() - began)


def browser_times(page: Any, tasks: int, history: int, ticks: int) -> tuple[float, list[float], list[float]]:
    """Ms to the first chart; per tick, ms until graph and numbers are updated, and ms of tasks longer than 50 ms."""
    page.set_content(PAGE % STYLE.read_text("utf-8") + _script(bundle("dashboard")))
    page.wait_for_function("window.ready")
    frames = [frame(float(t), tasks) for t in range(history + ticks)]
    known = [task["id"] for task in frames[0]["tasks"]], [edge["name"] for edge in frames[0]["edges"]]
    message = {"kind": "frames", "fresh": True, "frames": frames[:history], "history_s": HISTORY_S}
    first = page.evaluate("message => first(message)", {**message, "specs": specs(*known)})
    measured = [
        page.evaluate("message => tick(message)", {**message, "fresh": False, "frames": [each]})
        for each in frames[history:]
    ]
    return first, [shown for shown, _ in measured], [busy for _, busy in measured]


def _script(code: str) -> str:
    return f'<script type="text/plain" id="code">{code.replace("</script", "<" + chr(92) + "/script")}</script>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of watching the kernel")
    parser.add_argument("--ticks", type=int, default=12)
    options = parser.parse_args()
    idle, fed = kernel_cpu(20, options.seconds)
    print(json.dumps({"kernel, 20 tasks at 1 Hz": {"idle, % of a core": round(idle, 2), "fed": round(fed, 2)}}))
    path = shutil.which(os.environ.get("CHROMIUM", "chromium"))
    if path is None:
        print("no Chromium: the browser is not measured")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for tasks, history in ((4, 60), (50, 60), (50, 600)):
            page = browser.new_page(viewport={"width": 1100, "height": 3000})
            first, shown, busy = browser_times(page, tasks, history, options.ticks)
            figures = {
                "first chart, ms": round(first),
                "graph after, ms": round(statistics.median(shown), 1),
                "long tasks a tick, ms": round(statistics.median(busy)),
                "most": round(max(busy)),
            }
            print(json.dumps({f"browser, {tasks} tasks, {history} s of history": figures}))
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
