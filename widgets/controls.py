"""Controls: standard widgets, each of which puts one command on a queue and says what became of it."""

from __future__ import annotations

import html
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import ipywidgets as ipw

PENDING, DONE, REFUSED = "pending", "done", "refused"

#: A row of controls: in line, and on to the next line where the page is narrow.
ROW = {"flex_flow": "row wrap", "align_items": "center", "grid_gap": "2px 12px"}
SLIDER_PX = 290  #: a slider and its number, beside its label
FEWEST_LETTERS, MOST_LETTERS = 8, 44


def labelled(words: str, column: Iterable[str] = (), width_px: int = SLIDER_PX) -> dict[str, Any]:
    """Description, style and layout of a control that stands in a column with others, of which none is cut."""
    letters = min(max(map(len, (words, *column))) + 1, MOST_LETTERS)
    letters = max(letters, FEWEST_LETTERS)
    return {
        "description": words,
        "style": {"description_width": f"{letters}ch"},
        "layout": {"width": f"calc({letters}ch + {width_px}px)", "max_width": "100%"},
    }


def row(*controls: ipw.Widget) -> ipw.HBox:
    """Controls side by side."""
    return ipw.HBox(controls, layout=ROW)


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
        names = [f"{query[0]}: at least" for query in queries]
        shown = [_arrow(name) for name in edges]
        self.body.children = [
            ipw.Tab(
                [
                    ipw.VBox([self._query(*query, names) for query in queries]),
                    ipw.VBox([self._override(name, shown) for name in edges]),
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

    def _query(self, id: str, minimum: float, priority: int, column: Iterable[str]) -> ipw.HBox:
        accuracy = _share(minimum, labelled(f"{id}: at least", column))
        rank = ipw.BoundedIntText(priority, min=-1000, max=1000, **labelled("priority", width_px=80))
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
        return row(accuracy, rank)

    def _override(self, name: str, column: Iterable[str]) -> ipw.HBox:
        shown = _arrow(name)
        slider = _share(1.0, labelled(shown, column), readout_format=".2f", disabled=True)
        manual = ipw.Checkbox(
            False, description="by hand", indent=False, tooltip=f"hold d of {shown}", layout={"width": "auto"}
        )

        def turn(_: Any = None) -> None:
            slider.disabled = not manual.value
            d = slider.value if manual.value else None
            words = f"{shown}: d = {d:.2f} by hand" if d is not None else f"{shown}: automatic"
            self._give(words, lambda: self._session.override(name, d))

        manual.observe(turn, "value")
        slider.observe(lambda _: turn() if manual.value else None, "value")
        return row(slider, manual)

    def _cluster(self, managers: tuple[str, ...], instances: tuple[str, ...]) -> ipw.VBox:
        column = ("remove", "move")
        wide = max((len(name) for name in (*managers, *instances)), default=0) * 8 + 50
        alone = len(managers) < 2
        add = ipw.Button(description="add a task manager", icon="plus", layout={"width": "auto"})
        add.on_click(lambda _: self._give("another task manager", self._session.add_task_manager))
        which = ipw.Dropdown(options=managers, **labelled("remove", column, wide))
        remove = ipw.Button(description="remove it", disabled=alone, layout={"width": "110px"})
        remove.on_click(
            lambda _: self._give(f"{which.value} goes", lambda: self._session.remove_task_manager(which.value))
        )
        instance = ipw.Dropdown(options=instances, **labelled("move", column, wide))
        target = ipw.Dropdown(options=managers, **labelled("to", (), wide))
        move = ipw.Button(description="move it", disabled=alone, layout={"width": "110px"})
        move.on_click(
            lambda _: self._give(
                f"{instance.value} to {target.value}", lambda: self._session.move(instance.value, target.value)
            )
        )
        return ipw.VBox([row(add), row(which, remove), row(instance, target, move)])

    def _loop(self, period_s: float, paused: bool) -> ipw.VBox:
        period = ipw.FloatSlider(
            period_s, min=1.0, max=30.0, step=0.5, continuous_update=False, **labelled("decide every, s")
        )
        period.observe(
            lambda change: self._give(
                f"a period of {change['new']:g} s", lambda: self._session.set_period(change["new"])
            ),
            "value",
        )
        stop = ipw.ToggleButton(
            paused, description="recommend only", tooltip="make plans, apply none", layout={"width": "auto"}
        )
        stop.observe(
            lambda change: self._give(
                "plans are only recommended" if change["new"] else "plans are applied",
                self._session.pause if change["new"] else self._session.resume,
            ),
            "value",
        )
        return ipw.VBox([row(period), row(stop)])


def _arrow(edge: str) -> str:
    return edge.replace(">", " → ")


def _share(value: float, look: Mapping[str, Any], **more: Any) -> ipw.FloatSlider:
    """A slider from 0 to 1."""
    given = {"readout_format": ".0%", "continuous_update": False, **look, **more}
    return ipw.FloatSlider(value, min=0.0, max=1.0, step=0.01, **given)


def replay_controls(replay: Any) -> ipw.VBox:
    """The dashboard of a recording, a slider through its time, and what the policy would have done instead."""
    length = len(replay.lines) - 1
    slider = ipw.IntSlider(replay.position, min=0, max=max(length, 1), **labelled("cycle", width_px=460))
    play = ipw.ToggleButton(
        False, description="play", icon="play", tooltip="play the recording from here", layout={"width": "90px"}
    )
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

    def turn(change: Mapping[str, Any]) -> None:
        play.description, play.icon = ("pause", "pause") if change["new"] else ("play", "play")
        if change["new"]:
            replay.play()
        else:
            replay.pause()

    replay.on_move(moved)
    slider.observe(seek, "value")
    play.observe(turn, "value")
    return ipw.VBox([row(play, slider), replay.dashboard(), what_if(replay)])


def what_if(replay: Any) -> ipw.VBox:
    """Other restrictions for a query, and the plan that the policy would have made with them at this position."""
    queries = {task["id"]: task for task in replay.frames[-1]["tasks"] if task["kind"] == "query"}
    if not queries:
        return ipw.VBox()
    wide = max(len(name) for name in queries) * 8 + 50
    query = ipw.Dropdown(options=list(queries), **labelled("What if", width_px=wide))
    first = queries[query.value]
    minimum = _share(first["minimum"], labelled("at least"), continuous_update=True)
    priority = ipw.BoundedIntText(first["priority"], min=-1000, max=1000, **labelled("priority", width_px=80))
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
    return ipw.VBox([row(query, minimum, priority), answer])


def plan_table(recorded: Mapping[str, Any], plan: Any) -> str:
    """HTML: the accuracies that were planned, and those of `plan`; what differs is marked."""
    rows = "".join(_plan_row(task, recorded["desired"].get(task), now) for task, now in plan.desired.items())
    moves = ", ".join(f"{name} to {where}" for name, where in plan.place.items()) or "none"
    starved = ", ".join(plan.starved) or "none"
    head = "".join(f"<th scope='col'>{name}</th>" for name in ("task", "was planned", "what if"))
    return (
        f"<div class='qod-plan' role='status'><table><caption>Desired accuracy</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table><p>moves: {html.escape(moves)}; starved: {html.escape(starved)}</p></div>"
    )


def _plan_row(task: str, before: float | None, now: float) -> str:
    was = "-" if before is None else f"{before:.3f}"
    mark = " class='qod-other'" if was != f"{now:.3f}" else ""
    return f"<tr{mark}><th scope='row'>{html.escape(task)}</th><td>{was}</td><td>{now:.3f}</td></tr>"
