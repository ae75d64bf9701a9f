"""A cycle's entries for the decision log: only changes that matter. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from qod_magics.controller.cycle import Cycle, Decision
from qod_magics.controller.entry import Entry
from qod_magics.core.actions import Move
from qod_magics.core.dag import Dag
from qod_magics.core.keyed import Keyed, Keys, differing, in_order
from qod_magics.core.reasons import Reasons
from qod_magics.core.runtime import Event
from qod_magics.core.snapshot import Instance

#: a desired accuracy that differs by no more from the last one logged is not worth an entry
WORTH_SAYING = 0.01

#: keys of an event's detail that name what it is about
SUBJECTS = ("instance", "task", "task_manager", "from", "to", "source", "stream", "query")

#: what became of a task manager of a budget, by kind of event
NODES = {
    "task-manager-starting": "starts",
    "task-manager-standby": "stands by",
    "task-manager-removed": "left",
    "task-manager-failed": "failed",
}


@dataclass(frozen=True, slots=True)
class Said:
    """What the log last reported, so that it is not repeated."""

    desired: Mapping[str, float] = field(default_factory=dict)  #: by task
    moving: Mapping[str, str] = field(default_factory=dict)  #: instance -> task manager
    starved: frozenset[str] = frozenset()


def narrate(cycle: Cycle, decision: Decision, said: Said) -> tuple[tuple[Entry, ...], Said]:
    """The entries for a cycle's decision, and what the log has reported with them."""
    plan = decision.plan
    dag = Dag.of(decision.snapshot)
    tasks = dag.tasks
    wanted = in_order(plan.desired, tasks)
    desired = _last_said(said, tasks)
    changed = [t for t in differing(desired, wanted) if abs(wanted[t] - desired[t]) > WORTH_SAYING]
    moves = decision.accepted.moves
    rows = {each.id: each for each in decision.snapshot.instances} if moves else {}
    # a recorded plan may name missing instances: such moves were refused
    going = [move for move in moves if move.instance in rows and move.to != rows[move.instance].task_manager]
    starved = frozenset(plan.starved)
    entries: list[Entry] = []
    if changed:
        names = [tasks.all[t] for t in changed]
        causes = decision.reasons.shedding(names)
        for t, task in zip(changed, names, strict=True):
            entries.append(_shedding(cycle, task, desired[t], wanted[t], causes[task]))
            desired[t] = wanted[t]
    for move in going:
        if said.moving.get(move.instance) != move.to:
            entries.append(_move(cycle, rows[move.instance], move, decision.reasons))
    entries += _starving(cycle, starved, said.starved, decision)
    moving = {move.instance: move.to for move in going}
    return tuple(entries), Said(Keyed(tasks, desired), moving, starved)


def _last_said(said: Said, tasks: Keys[str]) -> list[float]:
    """The desired accuracies of these tasks that the log last reported; 1 where it reported none."""
    known = said.desired
    if isinstance(known, Keyed) and known.order is tasks:
        return list(known.column)
    return [known.get(task, 1.0) for task in tasks.all]


def narrate_event(event: Event, cycle: Cycle) -> Entry:
    """The entry for something that happened in the cluster."""
    detail = event.detail
    names = dict.fromkeys(str(detail[key]) for key in SUBJECTS if isinstance(detail.get(key), str))
    numbers = {k: float(v) for k, v in detail.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    kind = "moved" if event.kind == "move" else event.kind  # "move" is the decision
    return Entry(cycle.number, cycle.at, kind, tuple(names), _words(event), numbers)


def _words(event: Event) -> str:
    detail = event.detail
    reason = f": {detail['why']}" if detail.get("why") else ""
    took = f"{detail['took_s']:.1f} s" if isinstance(detail.get("took_s"), (int, float)) else ""
    if event.kind == "move" and "instance" in detail:
        took = took and f" in {took}"
        return f"{detail['instance']} moved from {detail.get('from')} to {detail.get('to')}{took}{reason}"
    if event.kind in ("warm-up", "warm-up-over"):
        return f"{detail['instance']}{reason}"
    if event.kind in NODES and "task_manager" in detail:
        again = f"; the next start is in {detail['retry_in_s']:.0f} s" if "retry_in_s" in detail else ""
        took = took and f" after {took}"
        return f"{detail['task_manager']} {NODES[event.kind]}{took}{reason}{again}"
    facts = [f"{key} {_short(value)}" for key, value in detail.items() if key != "why"]
    return f"{', '.join(facts)}{reason}" if facts else event.kind + reason


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else f"{text[:199]}…"


def _shedding(cycle: Cycle, task: str, before: float, after: float, because: str) -> Entry:
    verb = ("sheds more" if after < before else "sheds less") if after < 1 else "sheds nothing any more"
    words = f"{task} {verb}: from {before:.2f} to {after:.2f} of its input; {because}"
    return Entry(cycle.number, cycle.at, "shedding", (task,), words, {"before": before, "after": after})


def _starving(cycle: Cycle, now: frozenset[str], before: frozenset[str], decision: Decision) -> Iterator[Entry]:
    if now == before:
        return
    there = {manager.id for manager in decision.snapshot.task_managers}
    for name in sorted((now ^ before) & there):
        numbers = decision.reasons.numbers(name)
        if name in now:
            yield Entry(cycle.number, cycle.at, "starved", (name,), decision.reasons.starved(name), numbers)
        else:
            supply = decision.reasons.supply(name)
            words = f"{name} is no longer starved{': ' if supply else ''}{supply}"
            yield Entry(cycle.number, cycle.at, "starved-over", (name,), words, numbers)


def _move(cycle: Cycle, row: Instance, move: Move, reasons: Reasons) -> Entry:
    source = row.task_manager
    verb = "moves" if cycle.applied else "should move"
    because = f": {move.why}" if move.why else ""
    words = f"{move.instance} {verb} from {source} to {move.to}{because}"
    names = tuple(dict.fromkeys((move.instance, row.task, source, move.to)))
    return Entry(cycle.number, cycle.at, "move", names, words, reasons.numbers(source))
