"""Controls: standard widgets, each of which puts one command on a queue and shows its outcome."""

from __future__ import annotations

import html
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from math import inf
from typing import Any, Protocol

import ipywidgets as ipw

PENDING, DONE, REFUSED = "pending", "done", "refused"

#: A row of controls, which wraps where the page is narrow.
ROW = {"flex_flow": "row wrap", "align_items": "center", "grid_gap": "2px 12px"}
SLIDER_PX = 290  #: a slider and its number, beside its label
NO_TARGET = 0.0  #: in the place of a maximum latency
FEWEST_LETTERS, MOST_LETTERS = 8, 44


def labelled(words: str, column: Iterable[str] = (), width_px: int = SLIDER_PX) -> dict[str, Any]:
    """Description, style and layout of a control in a column of others, wide enough for the longest label."""
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
    """One queue and one thread, so that widget handlers never block and commands keep their order."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], object], Callable[[str, str], object]] | None] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"commands of a panel: {self._queue.qsize()} queued"

    def give(self, command: Callable[[], object], told: Callable[[str, str], object]) -> None:
        """Queue `command`; `told` is called with "pending" now, then with "done" or "refused" and the reason."""
        told(PENDING, "")
        self._queue.put((command, told))
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="qod-commands", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread after the queued commands."""
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
    """The interface of a session that the controls need."""

    def set(
        self,
        name: str,
        *,
        priority: int | None = None,
        min_accuracy: float | None = None,
        max_latency_s: float | None = None,
    ) -> str:
        """Change a query's restrictions; a maximum latency of infinity removes it. Returns what does not change."""
        ...

    def override(self, name: str, d: float | None) -> str:
        """Hold a non-drop probability; None returns it to the controller. Returns when that takes effect, if later."""
        ...

    def set_period(self, seconds: float) -> None:
        """Change the controller's period."""
        ...

    def set_policy(self, name: str) -> object:
        """Have another policy decide, or the same with other parameters: "henge settle_s=15"."""
        ...

    def pause(self) -> None:
        """Make plans without applying them."""
        ...

    def resume(self) -> None:
        """Apply plans again."""
        ...

    def add_task_manager(self) -> str:
        """Start one; returns its id."""
        ...

    def remove_task_manager(self, id: str) -> object:
        """Move its instances to the others, then end it."""
        ...

    def limit_cpu(self, task_manager: str, share: float) -> None:
        """Limit the CPU that plans use on a task manager to a share of its cores."""
        ...

    def move(self, instance: str, task_manager: str) -> None:
        """Move an instance."""
        ...


class Followed:
    """A control that follows the session's value; only what a user chooses becomes a command.

    A choice stays visible until the session's value changes, so that it does not jump back while it is pending.
    """

    def __init__(self, control: ipw.ValueWidget, give: Callable[[Any, Callable[[], object]], object]) -> None:
        """`give` is called with the user's choice and a function that undoes it if it is refused."""
        self.control, self.holds = control, control.value
        self._give = give
        self._following = threading.local()
        control.observe(self._chosen, "value")

    def follow(self, holds: Any) -> None:
        """Show the session's value `holds`, if it has changed."""
        if holds != self.holds:
            self.holds = holds
            self.back()

    def back(self) -> None:
        """Show the session's value again."""
        self._following.on = True
        try:
            self.control.value = self.holds
        finally:
            self._following.on = False

    def _chosen(self, change: Mapping[str, Any]) -> None:
        if not getattr(self._following, "on", False):
            self._give(change["new"], self.back)


class Shedder:
    """Controls of one shedder: its probability is held by hand, or follows the plan."""

    def __init__(self, name: str, column: Iterable[str], panel: Panel) -> None:
        shown = _arrow(name)
        self._name, self._shown, self._panel = name, shown, panel
        slider = share(1.0, labelled(shown, column), readout_format=".2f", disabled=True)
        manual = ipw.Checkbox(
            False, description="by hand", indent=False, tooltip=f"hold d of {shown}", layout={"width": "auto"}
        )
        self.d, self.by_hand = Followed(slider, self._turn), Followed(manual, self._take)
        self.view = row(slider, manual)

    def follow(self, planned: float | None, held: float | None) -> None:
        """Show the probability held by hand, or else the planned one."""
        self.by_hand.follow(held is not None)
        d = held if self.by_hand.control.value else planned
        if d is not None:
            self.d.follow(round(d, 2) if held is None else held)
        self.d.control.disabled = not self.by_hand.control.value

    def _take(self, by_hand: bool, back: Callable[[], object]) -> None:
        self.d.control.disabled = not by_hand
        if by_hand:
            self._turn(self.d.control.value, back)
        else:
            self._panel.give(f"{self._shown}: automatic", lambda: self._panel.session.override(self._name, None), back)

    def _turn(self, d: float, back: Callable[[], object]) -> None:
        if self.by_hand.control.value:
            words = f"{self._shown}: d = {d:.2f} by hand"
            self._panel.give(words, lambda: self._panel.session.override(self._name, d), back)


class Panel:
    """The controls of a session. `update` follows what a frame shows; call it from any thread."""

    TABS = ("Queries", "Shedders", "Task managers", "Controller")

    def __init__(self, session: Controlled, commands: Commands) -> None:
        self.session, self._commands = session, commands
        self._queries: dict[str, tuple[Followed, Followed, Followed]] = {}
        self._shedders: dict[str, Shedder] = {}
        self._cluster: tuple[tuple[str, ...], ...] | None = None
        self._limits: dict[str, Followed] = {}  #: of the CPU, by task manager
        self._lists: tuple[ipw.Dropdown, ...] = ()  #: task manager to remove; instance to move, its target
        self._loop: tuple[Followed, Followed] | None = None
        self._policy: Followed | None = None
        self._tabs = ipw.Tab([ipw.VBox() for _ in self.TABS], titles=self.TABS)
        self.said = ipw.HTML()
        self.body = ipw.VBox()
        self.view = ipw.VBox([self.body, self.said])
        self._tell("", "")

    def __repr__(self) -> str:
        return f"controls of {', '.join(self._queries) or 'no query'}"

    def update(
        self,
        frame: Mapping[str, Any],
        period_s: float,
        paused: bool,
        by_hand: Mapping[str, float] | None = None,
        policy: str = "",
        policies: Sequence[str] = (),
    ) -> None:
        """Show the session's values; rebuild controls whose tasks, streams or task managers have changed.

        `by_hand` are the non-drop probabilities that are held by hand, by source or stream; `policy` is the name of the
        one that decides, with its parameters, and `policies` are the names to choose from.
        """
        self._update_queries([task for task in frame["tasks"] if task["minimum"] is not None])
        self._update_shedders({edge["name"]: edge["d"] for edge in frame["edges"]}, by_hand or {})
        managers = tuple(manager["id"] for manager in frame["managers"])
        instances = tuple(sorted(name for task in frame["tasks"] for name in task["instances"]))
        if self._cluster != (managers, instances):
            self._cluster = managers, instances
            self._limits = {id: self._make_limit(id, managers) for id in managers}
            limits = [row(each.control) for each in self._limits.values()]
            self._fill(2, [*self._make_cluster(managers, instances), *limits])
        for manager in frame["managers"]:
            self._limits[manager["id"]].follow(manager["limit"])
        if self._loop is None:
            self._loop = self._make_loop(period_s, paused)
            self._policy = self._make_policy(policy, policies)
            self._fill(3, [row(each.control) for each in (*self._loop, self._policy)])
        if self._policy is not None:
            self._policy.follow(policy)
        for each, holds in zip(self._loop, (period_s, paused), strict=True):
            each.follow(holds)
        if not self.body.children:
            self.body.children = [self._tabs]

    def end(self) -> None:
        """Remove the controls: the session has ended."""
        self.body.children = []
        self.said.value = '<span role="status">The session has ended.</span>'

    def give(self, what: str, command: Callable[[], object], back: Callable[[], object] = lambda: None) -> None:
        """Queue a command and show its outcome; `back` is called if it is refused."""

        def told(state: str, reason: str) -> None:
            self._tell(what, state, reason)
            if state == REFUSED:
                back()

        self._commands.give(command, told)

    def _tell(self, what: str, state: str, reason: str = "") -> None:
        words = f"{what}: {state}" + (f", {reason}" if reason else "") if what else "&nbsp;"
        self.said.value = f'<span role="status">{words if not what else html.escape(words)}</span>'

    def _fill(self, tab: int, controls: Iterable[ipw.Widget]) -> None:
        """Replace the controls of a tab, and close the old ones."""
        before = self._tabs.children[tab].children
        self._tabs.children[tab].children = tuple(controls)
        for each in before:
            _close(each)

    # -- queries and shedders ------------------------------------------------------------------------------------------

    def _update_queries(self, queries: list[Mapping[str, Any]]) -> None:
        if list(self._queries) != [query["id"] for query in queries]:
            column = [_at_least(query["id"]) for query in queries]
            self._queries = {query["id"]: self._make_query(query, column) for query in queries}
            self._fill(0, [row(*(each.control for each in controls)) for controls in self._queries.values()])
        for query in queries:
            accuracy, priority, latency = self._queries[query["id"]]
            accuracy.follow(query["minimum"])
            priority.follow(query["priority"])
            latency.follow(query["target"] or NO_TARGET)

    def _make_query(self, query: Mapping[str, Any], column: Iterable[str]) -> tuple[Followed, Followed, Followed]:
        id = query["id"]
        accuracy = share(query["minimum"], labelled(_at_least(id), column))
        rank = ipw.BoundedIntText(query["priority"], min=-1000, max=1000, **labelled("priority", width_px=80))
        most = ipw.BoundedFloatText(
            query["target"] or NO_TARGET, min=NO_TARGET, max=3600.0, step=0.5, **labelled("within, s", width_px=90)
        )
        most.tooltip = "maximum latency of 95 % of the rows, seconds; 0: none"
        return (
            Followed(
                accuracy,
                lambda new, back: self.give(
                    f"{id} at least {new:.0%}", lambda: self.session.set(id, min_accuracy=new), back
                ),
            ),
            Followed(
                rank,
                lambda new, back: self.give(f"{id} priority {new}", lambda: self.session.set(id, priority=new), back),
            ),
            Followed(
                most,
                lambda new, back: self.give(
                    f"{id} within {new:g} s" if new else f"{id} without a latency target",
                    lambda: self.session.set(id, max_latency_s=new or inf),
                    back,
                ),
            ),
        )

    def _update_shedders(self, planned: Mapping[str, float | None], by_hand: Mapping[str, float]) -> None:
        if self._shedders.keys() != planned.keys():
            column = list(map(_arrow, planned))
            self._shedders = {name: Shedder(name, column, self) for name in planned}
            self._fill(1, [each.view for each in self._shedders.values()])
        for name, shedder in self._shedders.items():
            shedder.follow(planned[name], by_hand.get(name))

    # -- the cluster and the loop --------------------------------------------------------------------------------------

    def _make_limit(self, id: str, managers: Iterable[str]) -> Followed:
        slider = share(1.0, labelled(_at_most(id), map(_at_most, managers)), min=0.05)
        slider.tooltip = f"share of the cores of {id} that plans may use"
        return Followed(
            slider,
            lambda new, back: self.give(
                f"{id} at most {new:.0%} of its CPU", lambda: self.session.limit_cpu(id, new), back
            ),
        )

    def _make_cluster(self, managers: tuple[str, ...], instances: tuple[str, ...]) -> list[ipw.Widget]:
        column = ("remove", "move")
        wide = max((len(name) for name in (*managers, *instances)), default=0) * 8 + 50
        alone = len(managers) < 2
        options, defaults = (managers, instances, managers), (0, 0, -1)
        kept = [_kept(*each) for each in zip_longest(options, defaults, self._lists)]
        add = ipw.Button(description="add a task manager", icon="plus", layout={"width": "auto"})
        add.on_click(lambda _: self.give("another task manager", self.session.add_task_manager))
        which = ipw.Dropdown(options=managers, value=kept[0], **labelled("remove", column, wide))
        remove = ipw.Button(description="remove it", disabled=alone, layout={"width": "110px"})
        instance = ipw.Dropdown(options=instances, value=kept[1], **labelled("move", column, wide))
        target = ipw.Dropdown(options=managers, value=kept[2], **labelled("to", (), wide))
        move = ipw.Button(description="move it", disabled=alone, layout={"width": "110px"})

        def go(_: Any) -> None:
            id = which.value  # as it is now, not when the command's turn comes
            self.give(f"{id} goes", lambda: self.session.remove_task_manager(id))

        def send(_: Any) -> None:
            id, where = instance.value, target.value
            self.give(f"{id} to {where}", lambda: self.session.move(id, where))

        remove.on_click(go)
        move.on_click(send)
        self._lists = which, instance, target
        return [row(add), row(which, remove), row(instance, target, move)]

    def _make_loop(self, period_s: float, paused: bool) -> tuple[Followed, Followed]:
        period = ipw.FloatSlider(
            period_s, min=1.0, max=30.0, step=0.5, continuous_update=False, **labelled("decide every, s")
        )
        stop = ipw.ToggleButton(
            paused, description="recommend only", tooltip="make plans, apply none", layout={"width": "auto"}
        )
        return (
            Followed(
                period,
                lambda new, back: self.give(f"a period of {new:g} s", lambda: self.session.set_period(new), back),
            ),
            Followed(
                stop,
                lambda new, back: self.give(
                    "plans are only recommended" if new else "plans are applied",
                    self.session.pause if new else self.session.resume,
                    back,
                ),
            ),
        )

    def _make_policy(self, policy: str, policies: Sequence[str]) -> Followed:
        box = ipw.Combobox(
            value=policy, options=tuple(policies), continuous_update=False, **labelled("policy", ("decide every, s",))
        )
        box.tooltip = "with parameters: henge settle_s=15; %qod policy NAME -h lists them"
        return Followed(
            box, lambda new, back: self.give(f"policy {new}", lambda: self.session.set_policy(new.strip()), back)
        )


def _arrow(edge: str) -> str:
    return edge.replace(">", " → ")


def _at_least(query: str) -> str:
    return f"{query}: at least"


def _at_most(task_manager: str) -> str:
    return f"{task_manager}: CPU at most"


def _kept(options: Sequence[str], default: int, before: ipw.Dropdown | None) -> str | None:
    """Return initial value of a list that replaces `before`: the value shown there, if it is still an option and there
    was a choice, since the user may be about to act on it."""
    if before is not None and before.value in options and (default == 0 or len(before.options) > 1):
        return str(before.value)
    return options[default] if options else None


def _close(widget: ipw.Widget) -> None:
    for child in getattr(widget, "children", ()):
        _close(child)
    widget.close()


def share(value: float, look: Mapping[str, Any], **more: Any) -> ipw.FloatSlider:
    """Return a slider from 0 to 1."""
    given = {"readout_format": ".0%", "continuous_update": False, "min": 0.0, **look, **more}
    return ipw.FloatSlider(value, max=1.0, step=0.01, **given)
