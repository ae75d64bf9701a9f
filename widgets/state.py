"""One controller cycle as the dashboard shows it: a recording's line -> one small JSON object. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from qod_magics.recordings.phases import Line, is_warming_up, period_s
from qod_magics.recordings.verdict import ACCURACY_TOLERANCE, FULL_ACCURACY

OTHER = "other processes"

#: state -> how much it asks for attention: 0 all is well, 1 something is given up, 2 all that may be is, 3 trouble
STATES = {
    "full accuracy": 0,
    "idle": 0,
    "shedding": 1,
    "warming up": 1,
    "starting": 1,
    "moving": 1,
    "at minimum": 2,
    "no metrics": 2,
    "waiting": 2,
    "backing off": 3,
    "below minimum": 3,
    "starved": 3,
    "given up": 3,
}

Frame = dict[str, Any]


def frame(line: Line, began: datetime, log: Iterable[Mapping[str, Any]] = ()) -> Frame:
    """What happened in a cycle, `t` seconds after `began`; `log` are the entries of the decision log (at, kind, words).

    Rates are rows/s, CPU is % of one core, accuracies are fractions of 1, lag and dropped are rows.
    """
    snapshot, plan = line["snapshot"], line.get("plan") or {}
    measured = line.get("measured") or {}
    keep = {(row["from"], row["to"]): row["d"] for row in _keep(line)}
    by_task: dict[str, list[Mapping[str, Any]]] = {task["id"]: [] for task in snapshot["tasks"]}
    for instance in snapshot["instances"]:
        by_task[instance["task"]].append(instance)
    readers = {stream["from"] for stream in snapshot["streams"]}
    out_rate = {stream["from"]: stream["out_rate"] for stream in snapshot["streams"]}
    at = datetime.fromisoformat(line["at"])
    tasks = [
        _task(task, by_task[task["id"]], plan, measured, out_rate, task["id"] in readers) for task in snapshot["tasks"]
    ]
    names = [(None, task["id"]) for task in snapshot["tasks"] if not task["upstream"]]
    names += [(stream["from"], stream["to"]) for stream in snapshot["streams"]]
    return {
        "t": round((at - began).total_seconds(), 3),
        "at": line["at"],
        "cycle": line.get("cycle"),
        "period_s": period_s(line),
        "phase": line.get("phase"),
        "applied": bool(line.get("applied")),
        "warming_up": is_warming_up(line),
        "managers": [_manager(manager, snapshot["instances"], plan) for manager in snapshot["task_managers"]],
        "tasks": tasks,
        "edges": [_edge(edge, keep, measured, out_rate) for edge in names],
        "log": [dict(entry) for entry in log],
    }


def _keep(line: Line) -> list[Mapping[str, Any]]:
    """The settings of the shedders: the dials, or the plan where a recording has no dials."""
    dials = line.get("dials") or {}
    found: list[Mapping[str, Any]] = dials.get("keep") or (line.get("plan") or {}).get("non_drop", [])
    return found


def _manager(manager: Mapping[str, Any], instances: Iterable[Mapping[str, Any]], plan: Mapping[str, Any]) -> Frame:
    used: dict[str, float] = {}
    for instance in instances:
        if instance["task_manager"] == manager["id"]:
            used[instance["task"]] = used.get(instance["task"], 0.0) + instance["cpu"]
    used[OTHER] = max(manager["cpu"] - sum(used.values()), 0.0)
    return {
        "id": manager["id"],
        "capacity": 100.0 * manager["cores"],
        "cpu": manager["cpu"],
        "tasks": {task: round(cpu, 2) for task, cpu in used.items()},
        "starved": manager["id"] in plan.get("starved", ()),
    }


def _task(
    task: Mapping[str, Any],
    instances: list[Mapping[str, Any]],
    plan: Mapping[str, Any],
    measured: Mapping[str, Any],
    out_rate: Mapping[str, float],
    has_readers: bool,
) -> Frame:
    id = task["id"]
    feeds = [f"{upstream}>{id}" for upstream in task["upstream"]] or [id]
    accuracy = (measured.get("accuracy") or {}).get(id)
    planned = (plan.get("desired") or {}).get(id)
    shown = {
        "id": id,
        "kind": "source" if not task["upstream"] else ("task" if has_readers else "query"),
        "accuracy": accuracy,
        "planned": planned,
        "minimum": task.get("min_accuracy"),
        "priority": task.get("priority"),
        "in_rate": sum(instance["in_rate"] for instance in instances),
        "out_rate": out_rate.get(id),
        "arriving": (measured.get("input_rate") or {}).get(id) if not task["upstream"] else None,
        "cpu": sum(instance["cpu"] for instance in instances),
        "lag": sum((measured.get("lag") or {}).get(feed, 0) for feed in feeds),
        "dropped": sum((measured.get("dropped") or {}).get(feed, 0) for feed in feeds),
        "modes": sorted({instance["mode"] for instance in instances if instance.get("mode")}),
        "where": sorted({instance["task_manager"] for instance in instances}),
        "instances": {instance["id"]: instance["task_manager"] for instance in instances},
    }
    state = _state(shown, instances, plan)
    return {**shown, "state": state, "attention": STATES[state]}


def _state(task: Frame, instances: list[Mapping[str, Any]], plan: Mapping[str, Any]) -> str:
    """One word for how a task does: the first that is true of what a user would want to know first."""
    lives = {str(instance.get("state")) for instance in instances}
    for life in ("given up", "backing off", "waiting", "moving", "starting"):
        if life in lives:
            return life
    if any(instance["warming_up"] for instance in instances):
        return "warming up"
    if any(instance.get("stale") or instance.get("missing") for instance in instances):
        return "no metrics"
    accuracy, minimum, planned = task["accuracy"], task["minimum"], task["planned"]
    if minimum is not None and accuracy is not None and accuracy < minimum - ACCURACY_TOLERANCE:
        return "below minimum"
    if set(task["where"]) & set(plan.get("starved", ())):
        return "starved"
    if planned is not None and planned < FULL_ACCURACY:
        return "at minimum" if minimum is not None and planned <= minimum + ACCURACY_TOLERANCE / 2 else "shedding"
    return "idle" if accuracy is None else "full accuracy"


def _edge(
    edge: tuple[str | None, str],
    keep: Mapping[tuple[str | None, str], float],
    measured: Mapping[str, Any],
    out_rate: Mapping[str, float],
) -> Frame:
    source, target = edge
    name = target if source is None else f"{source}>{target}"
    rate = (measured.get("input_rate") or {}).get(name)
    return {
        "name": name,
        "from": source,
        "to": target,
        "d": keep.get(edge),
        "rate": rate if rate is not None else (out_rate.get(source) if source is not None else None),
        "lag": (measured.get("lag") or {}).get(name),
        "dropped": (measured.get("dropped") or {}).get(name, 0),
    }
