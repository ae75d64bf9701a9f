"""Controls: standard widgets, each of which puts one command on a queue and says what became of it."""

from __future__ import annotations

import html
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import ipywidgets as ipw

PENDING, DONE, REFUSED = "pending", "done", "refused"

STYLE = {"description_width": "150px"}
LAYOUT = {"width": "420px"}


class Commands:
    """One queue and one thread, so that no handler of a widget ever waits and commands keep their order."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], object], Callable[[str, str], object]] | None] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None

    def give(self, command: Callable[[], object], told: Callable[[str, str], object]) -> None:
        """Have `command` carried out; `told` hears "pending" now, then "done" or "refused" with the reason."""
        told(PENDING, "")
        self._queue.put((command, told))
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="qod-commands", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread after what was given so far."""
        self._queue.put(None)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            command, told = item
            try:
                said = command()
            except Exception as error:
                told(REFUSED, " ".join(str(error).splitlines()))
            else:
                told(DONE, str(said) if isinstance(said, str) else "")


class Controlled(Protocol):
    """What the controls steer: a session, as far as they need it."""

    def set(self, name: str, *, priority: int | None = None, min_accuracy: float | None = None) -> None:
        """Restrict a query otherwise."""
        ...

    def override(self, name: str, d: float | None) -> None:
        """Hold a non-drop probability; None gives it back to the controller."""
        ...

    def set_period(self, seconds: float) -> None:
        """Decide so often."""
        ...

    def pause(self) -> None:
        """Recommend only."""
        ...

    def resume(self) -> None:
        """Apply plans again."""
        ...

    def add_task_manager(self) -> str:
        """Start one; its id."""
        ...

    def remove_task_manager(self, id: str) -> None:
        """Empty one and end it."""
        ...

    def move(self, instance: str, task_manager: str) -> None:
        """Move an instance."""
        ...


class Panel:
    """The controls of a session. `update` follows what a frame shows; call it from any thread."""

    def __init__(self, session: Controlled, commands: Commands) -> None:
        self._session, self._commands = session, commands
        self._known: tuple[Any, ...] = ()
        self._queries: dict[str, tuple[ipw.FloatSlider, ipw.IntText]] = {}
        self.said = ipw.HTML()
        self.body = ipw.VBox()
        self.view = ipw.VBox([self.body, self.said])
        self._tell("", "")

    def update(self, frame: Mapping[str, Any], period_s: float, paused: bool) -> None:
        """Build the controls anew when tasks, streams or task managers changed."""
        queries = tuple((t["id"], t["minimum"], t["priority"]) for t in frame["tasks"] if t["kind"] == "query")
        edges = tuple(edge["name"] for edge in frame["edges"])
        managers = tuple(manager["id"] for manager in frame["managers"])
        instances = tuple(sorted(name for task in frame["tasks"] for name in task["instances"]))
        known = (tuple(q[0] for q in queries), edges, managers, instances)
        if known == self._known:
            return
        self._known = known
        restrictions = [self._query(*query) for query in queries]
        self.body.children = [
            ipw.Tab(
                [
                    ipw.VBox(restrictions),
                    ipw.VBox([self._override(name) for name in edges]),
                    self._cluster(managers, instances),
                    self._loop(period_s, paused),
                ],
                titles=["Queries", "Shedders", "Task managers", "Controller"],
            )
        ]

    def _give(self, what: str, command: Callable[[], object]) -> None:
        self._commands.give(command, lambda state, reason: self._tell(what, state, reason))

    def _tell(self, what: str, state: str, reason: str = "") -> None:
        words = f"{what}: {state}" + (f", {reason}" if reason else "") if what else "&nbsp;"
        self.said.value = f'<span role="status">{words if not what else html.escape(words)}</span>'

    def _query(self, id: str, minimum: float, priority: int) -> ipw.HBox:
        accuracy = ipw.FloatSlider(
            minimum,
            min=0.0,
            max=1.0,
            step=0.01,
            description=f"{id}: at least",
            readout_format=".0%",
            continuous_update=False,
            style=STYLE,
            layout=LAYOUT,
        )
        rank = ipw.BoundedIntText(priority, min=-1000, max=1000, description="priority", layout={"width": "170px"})
        accuracy.observe(
            lambda change: self._give(
                f"{id} at least {change['new']:.0%}", lambda: self._session.set(id, min_accuracy=change["new"])
            ),
            "value",
        )
        rank.observe(
            lambda change: self._give(
                f"{id} priority {change['new']}", lambda: self._session.set(id, priority=change["new"])
            ),
            "value",
        )
        return ipw.HBox([accuracy, rank])

    def _override(self, name: str) -> ipw.HBox:
        shown = name.replace(">", " → ")
        slider = ipw.FloatSlider(
            1.0,
            min=0.0,
            max=1.0,
            step=0.01,
            description=shown,
            continuous_update=False,
            disabled=True,
            style=STYLE,
            layout=LAYOUT,
        )
        manual = ipw.Checkbox(False, description="by hand", indent=False)

        def turn(_: Any = None) -> None:
            slider.disabled = not manual.value
            d = slider.value if manual.value else None
            words = f"{shown}: d = {d:.2f} by hand" if d is not None else f"{shown}: automatic"
            self._give(words, lambda: self._session.override(name, d))

        manual.observe(turn, "value")
        slider.observe(lambda _: turn() if manual.value else None, "value")
        return ipw.HBox([slider, manual])

    def _cluster(self, managers: tuple[str, ...], instances: tuple[str, ...]) -> ipw.VBox:
        add = ipw.Button(description="add a task manager", layout={"width": "200px"})
        add.on_click(lambda _: self._give("another task manager", self._session.add_task_manager))
        which = ipw.Dropdown(options=managers, description="remove", style=STYLE)
        remove = ipw.Button(description="remove it", disabled=len(managers) < 2)
        remove.on_click(
            lambda _: self._give(f"{which.value} goes", lambda: self._session.remove_task_manager(which.value))
        )
        instance = ipw.Dropdown(options=instances, description="move", style=STYLE)
        target = ipw.Dropdown(options=managers, description="to", layout={"width": "200px"})
        move = ipw.Button(description="move it", disabled=len(managers) < 2)
        move.on_click(
            lambda _: self._give(
                f"{instance.value} to {target.value}", lambda: self._session.move(instance.value, target.value)
            )
        )
        return ipw.VBox([add, ipw.HBox([which, remove]), ipw.HBox([instance, target, move])])

    def _loop(self, period_s: float, paused: bool) -> ipw.VBox:
        period = ipw.FloatSlider(
            period_s,
            min=1.0,
            max=30.0,
            step=0.5,
            description="period, s",
            continuous_update=False,
            style=STYLE,
            layout=LAYOUT,
        )
        period.observe(
            lambda change: self._give(
                f"a period of {change['new']:g} s", lambda: self._session.set_period(change["new"])
            ),
            "value",
        )
        stop = ipw.ToggleButton(paused, description="recommend only", tooltip="make plans, apply none")
        stop.observe(
            lambda change: self._give(
                "plans are only recommended" if change["new"] else "plans are applied",
                self._session.pause if change["new"] else self._session.resume,
            ),
            "value",
        )
        return ipw.VBox([period, stop])


def replay_controls(replay: Any) -> ipw.VBox:
    """The dashboard of a recording, a slider through its time, and what the policy would have done instead."""
    length = len(replay.lines) - 1
    slider = ipw.IntSlider(
        replay.position, min=0, max=max(length, 1), description="cycle", style=STYLE, layout={"width": "560px"}
    )
    play = ipw.ToggleButton(False, description="play", icon="play", layout={"width": "110px"})
    moving = threading.local()

    def moved(position: int) -> None:
        moving.on = True
        try:
            slider.value = position
            if position == length:
                play.value = False
        finally:
            moving.on = False

    def seek(change: Mapping[str, Any]) -> None:
        if not getattr(moving, "on", False):
            replay.seek(replay.at[change["new"]])

    replay.on_move(moved)
    slider.observe(seek, "value")
    play.observe(lambda change: replay.play() if change["new"] else replay.pause(), "value")
    return ipw.VBox([ipw.HBox([play, slider]), replay.dashboard(), what_if(replay)])


def what_if(replay: Any) -> ipw.VBox:
    """Other restrictions for a query, and the plan that the policy would have made with them at this position."""
    queries = {task["id"]: task for task in replay.frames[-1]["tasks"] if task["kind"] == "query"}
    if not queries:
        return ipw.VBox()
    query = ipw.Dropdown(options=list(queries), description="What if", style=STYLE)
    first = queries[query.value]
    minimum = ipw.FloatSlider(
        first["minimum"], min=0, max=1, step=0.01, description="at least", readout_format=".0%", style=STYLE
    )
    priority = ipw.BoundedIntText(first["priority"], min=-1000, max=1000, description="priority")
    answer = ipw.HTML()

    def ask(_: Any = None) -> None:
        try:
            plan = replay.what_if(query.value, priority=priority.value, min_accuracy=minimum.value)
        except Exception as error:
            answer.value = f"<p>{html.escape(' '.join(str(error).splitlines()))}</p>"
            return
        answer.value = plan_table(replay.line["plan"], plan)

    def other(_: Any) -> None:
        chosen = queries[query.value]
        minimum.value, priority.value = chosen["minimum"], chosen["priority"]

    query.observe(other, "value")
    for each in (minimum, priority):
        each.observe(ask, "value")
    replay.on_move(ask)
    ask()
    return ipw.VBox([ipw.HBox([query, minimum, priority]), answer])


def plan_table(recorded: Mapping[str, Any], plan: Any) -> str:
    """HTML: the accuracies that were planned, and those of `plan`."""
    rows = "".join(
        f"<tr><th scope='row' style='text-align:left'>{html.escape(task)}</th>"
        f"<td>{recorded['desired'].get(task, float('nan')):.3f}</td><td>{accuracy:.3f}</td></tr>"
        for task, accuracy in plan.desired.items()
    )
    moves = ", ".join(f"{name} to {where}" for name, where in plan.place.items()) or "none"
    starved = ", ".join(plan.starved) or "none"
    head = "<tr><th scope='col'>task</th><th scope='col'>was planned</th><th scope='col'>what if</th></tr>"
    return f"<table>{head}{rows}</table><p>moves: {html.escape(moves)}; starved: {html.escape(starved)}</p>"
