"""A recording such as the demo writes: Taxi Drives under the real policy, on a small plant in virtual time.

The plant keeps whole rows, so its books are exact; its noise is seeded, so a recording is a function of its arguments.
Five phases as in the demo: calm, overload on one task manager, a second task manager joins, one sink becomes heavier,
calm again. With `controlled=False` every shedder is open and nothing moves: the engine alone.
"""

from __future__ import annotations

import json
import random
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from qod_magics.controller.record import Record, record_from_json
from qod_magics.core.json_form import plan_to_json, snapshot_from_json
from qod_magics.core.load import current_accuracy
from qod_magics.core.plan import Plan
from qod_magics.policies import policy

PERIOD_S = 5.0
TICKS = 25  #: of the plant in one period
AWAY_TICKS = 8  #: how long a moved instance is stopped
USABLE = 97.0  #: % of one core that the tasks of a task manager can get
START = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)

SOURCES = ("TDSrc1", "TDSrc2")
QUERIES = {"TDSnk1": (1, 0.4), "TDSnk2": (2, 0.6)}  #: priority, minimum accuracy
EDGES = tuple((source, sink) for source in SOURCES for sink in QUERIES)
PARALLELISM = {"TDSrc1": 1, "TDSrc2": 1, "TDSnk1": 2, "TDSnk2": 1}
#: % of one core for 1,000 rows/s
COST = {"TDSrc1": 8.0, "TDSrc2": 8.0, "TDSnk1": 14.0, "TDSnk2": 18.0}

#: name, cycles, rows/s of each source, cost factor of TDSnk2
SCRIPT = (
    ("calm", 12, 600, 1.0),
    ("overload", 16, 2_000, 1.0),
    ("second-task-manager", 18, 2_400, 1.0),
    ("heavier", 16, 2_400, 1.2),
    ("calm-again", 14, 600, 1.2),
)


@dataclass
class Books:
    """A queue of rows in front of a reader, with whole-row counts since the start."""

    arrived: int = 0
    processed: int = 0
    dropped: int = 0
    queue: deque[tuple[int, float]] = field(default_factory=deque)  #: (rows, accuracy at which they were sent)

    @property
    def waiting(self) -> int:
        return sum(rows for rows, _ in self.queue)

    def to_json(self) -> dict[str, int]:
        return {
            "arrived": self.arrived,
            "processed": self.processed,
            "dropped": self.dropped,
            "waiting": self.waiting,
            "unreported": 0,
        }


class Passed(NamedTuple):
    """Rows of one source or stream during one period."""

    arrived: int
    processed: int
    dropped: int

    @property
    def kept(self) -> float:
        return self.processed / max(self.processed + self.dropped, 1)


class Plant:
    """Two sources into two sinks, CPU proportional to rows, shared fairly among the instances of a task manager."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.place = {f"{t}.{i}": "tm1" for t, count in PARALLELISM.items() for i in range(1, count + 1)}
        self.task_managers = ["tm1"]
        self.books = {name: Books() for name in (*SOURCES, *(f"{a}>{b}" for a, b in EDGES))}
        self.cost = dict(COST)
        self.desired = dict.fromkeys(COST, 1.0)
        self.keep: dict[tuple[str | None, str], float] = {(None, s): 1.0 for s in SOURCES} | dict.fromkeys(EDGES, 1.0)
        self.moving: dict[str, str] = {}
        self.away: set[str] = set()  #: moved, and stopped for the first ticks of the period
        self.taken: Counter[str] = Counter()  #: rows by instance in this period

    def step(self, rate: float) -> dict[str, Any]:
        """Run one period; what the controller would observe at its end."""
        before = {name: (b.arrived, b.processed, b.dropped) for name, b in self.books.items()}
        self.taken.clear()
        rates = {source: rate * self.random.uniform(0.98, 1.02) for source in SOURCES}
        for tick in range(TICKS):
            for source in SOURCES:
                rows = self._whole(rates[source] * PERIOD_S / TICKS)
                self.books[source].arrived += rows
                self.books[source].queue.append((rows, 1.0))
            self._work(stopped=self.away if tick < AWAY_TICKS else set())
        return self._observe(
            {
                name: Passed(b.arrived - before[name][0], b.processed - before[name][1], b.dropped - before[name][2])
                for name, b in self.books.items()
            }
        )

    def _work(self, stopped: set[str]) -> None:
        """One tick: sources and then sinks read what their part of the CPU of their task manager allows."""
        budget = dict.fromkeys(self.task_managers, USABLE * PERIOD_S / TICKS)
        for turn in (SOURCES, tuple(QUERIES)):
            need = {i: self._need(i) for i in self.place if _task(i) in turn and i not in stopped}
            waiting = {name: books.waiting for name, books in self.books.items()}
            for tm in self.task_managers:
                mine = {i: wanted for i, wanted in need.items() if self.place[i] == tm}
                for instance, granted in fair_shares(mine, budget[tm]).items():
                    budget[tm] -= granted
                    share = granted / mine[instance] if mine[instance] else 1.0  # what is dropped unread costs nothing
                    for name in _inputs(_task(instance)):
                        self._read(instance, name, waiting[name] * share / PARALLELISM[_task(instance)])

    def _need(self, instance: str) -> float:
        """CPU to read all that waits for the instance, % of one core times seconds."""
        task = _task(instance)
        rows = sum(
            rows * self._kept(task, accuracy) for name in _inputs(task) for rows, accuracy in self.books[name].queue
        )
        return rows / PARALLELISM[task] * self.cost[task] / 1000

    def _kept(self, task: str, accuracy: float) -> float:
        """Share of rows sent at `accuracy` that the reading end keeps; a source has its shedder there."""
        if task in SOURCES:
            return self.keep[None, task]
        return min(1.0, self.desired[task] / accuracy) if accuracy else 0.0

    def _read(self, instance: str, name: str, rows: float) -> None:
        task, books, budget = _task(instance), self.books[name], self._whole(rows)
        while budget and books.queue:
            rows_there, accuracy = books.queue.popleft()
            reads = min(rows_there, budget)
            if rows_there > reads:
                books.queue.appendleft((rows_there - reads, accuracy))
            budget -= reads
            kept = self._whole(reads * self._kept(task, accuracy))
            books.processed += kept
            books.dropped += reads - kept
            self.taken[instance] += kept
            if task in SOURCES:
                self._send(task, kept)

    def _send(self, source: str, rows: int) -> None:
        for edge in EDGES:
            if edge[0] == source:
                books = self.books[f"{source}>{edge[1]}"]
                through = self._whole(rows * self.keep[edge])
                books.arrived += rows
                books.dropped += rows - through
                books.queue.append((through, self.desired[source] * self.keep[edge]))

    def _whole(self, rows: float) -> int:
        """A whole number of rows with `rows` as its mean."""
        return int(rows) if rows == int(rows) else int(rows + self.random.random())

    def _observe(self, delta: dict[str, Passed]) -> dict[str, Any]:
        instances = []
        for instance, tm in self.place.items():
            in_rate = self.taken[instance] / PERIOD_S
            cpu = in_rate / 1000 * self.cost[_task(instance)]
            instances.append(_instance(instance, tm, in_rate, cpu, instance in self.away))
        others = {tm: 2.0 + self.random.random() for tm in self.task_managers}
        snapshot = {
            "task_managers": [
                {"id": tm, "cores": 1, "cpu": others[tm] + sum(i["cpu"] for i in instances if i["task_manager"] == tm)}
                for tm in self.task_managers
            ],
            "tasks": [_source(s, delta[s].arrived / PERIOD_S) for s in SOURCES] + [_query(q) for q in QUERIES],
            "streams": [{"from": a, "to": b, "out_rate": delta[f"{a}>{b}"].arrived / PERIOD_S} for a, b in EDGES],
            "instances": instances,
        }
        reached = {q: sum(delta[s].kept * delta[f"{s}>{q}"].kept for s in SOURCES) / len(SOURCES) for q in QUERIES}
        measured = {
            "lag": {name: books.waiting for name, books in self.books.items()},
            "input_rate": {name: delta[name].arrived / PERIOD_S for name in self.books},
            "accuracy": reached,
            "dropped": {name: books.dropped for name, books in self.books.items()},
            "counts": {name: books.to_json() for name, books in self.books.items()},
            "latency_s": dict.fromkeys(QUERIES, 0.05),
        }
        return {"snapshot": snapshot, "measured": measured}

    def apply(self, plan: Plan) -> None:
        self.desired = dict(plan.desired)
        self.keep = dict(plan.non_drop)
        self.moving = {move.instance: move.to for move in plan.moves}

    def end_moves(self) -> list[dict[str, Any]]:
        """Carry out what the last plan asked for; the events of it."""
        found = []
        self.away.clear()
        for instance, tm in self.moving.items():
            took_s = round(AWAY_TICKS / TICKS * PERIOD_S + self.random.random(), 2)
            found.append(_move(instance, self.place[instance], tm, took_s))
            self.place[instance] = tm
            self.away.add(instance)
        self.moving = {}
        return found


def fair_shares(need: dict[str, float], budget: float) -> dict[str, float]:
    """What an operating system would give each: the same for all, and what one doesn't need to the others."""
    granted, left = {}, budget
    for count, (name, wanted) in enumerate(sorted(need.items(), key=lambda item: item[1])):
        granted[name] = min(wanted, left / (len(need) - count))
        left -= granted[name]
    return granted


def _task(instance: str) -> str:
    return instance.split(".")[0]


def _inputs(task: str) -> list[str]:
    return [task] if task in SOURCES else [f"{a}>{b}" for a, b in EDGES if b == task]


def _instance(name: str, tm: str, in_rate: float, cpu: float, warming: bool) -> dict[str, Any]:
    return {"id": name, "task": _task(name), "task_manager": tm, "in_rate": in_rate, "cpu": cpu, "warming_up": warming}


def _source(name: str, rate: float) -> dict[str, Any]:
    return {"id": name, "upstream": [], "external_rate": rate, "priority": None, "min_accuracy": None}


def _query(name: str) -> dict[str, Any]:
    priority, minimum = QUERIES[name]
    return {
        "id": name,
        "upstream": list(SOURCES),
        "external_rate": None,
        "priority": priority,
        "min_accuracy": minimum,
    }


def _move(instance: str, source: str, target: str, took_s: float) -> dict[str, Any]:
    why = f"{source} needs more than it has at minimum accuracies"
    return {"kind": "move", "instance": instance, "from": source, "to": target, "took_s": took_s, "why": why}


def records(lines: Sequence[Mapping[str, Any]]) -> list[Record]:
    """What a reader makes of these lines."""
    return [record_from_json(line, number) for number, line in enumerate(lines, 1)]


def taxi_drives(controlled: bool = True, seed: int = 7, policy_name: str = "stream-economics") -> list[dict[str, Any]]:
    """The lines of a run; with `controlled=False` only its phases calm and overload, with the controller off.

    Each call gives a copy that a test may change.
    """
    lines: list[dict[str, Any]] = json.loads(_run(controlled, seed, policy_name))
    return lines


@cache
def _run(controlled: bool, seed: int, policy_name: str) -> str:
    """As JSON, which is copied several times faster than what it stands for."""
    return f"[{','.join(map(json.dumps, _cycles(controlled, seed, policy_name)))}]"


def _cycles(controlled: bool, seed: int, policy_name: str) -> Iterator[dict[str, Any]]:
    plant, chosen, state, cycle = Plant(seed), policy(policy_name), None, 0
    for phase, cycles, rate, heavier in SCRIPT if controlled else SCRIPT[:2]:
        plant.cost["TDSnk2"] = COST["TDSnk2"] * heavier
        for first in (True, *(False for _ in range(cycles - 1))):
            events = plant.end_moves()
            if first and phase == "second-task-manager":
                plant.task_managers.append("tm2")
                events.append({"kind": "task-manager-up", "task_manager": "tm2"})
            observed = plant.step(rate)
            snapshot = snapshot_from_json(observed["snapshot"])
            plan, state = chosen.decide(snapshot, state)
            if controlled:
                plant.apply(plan)
            line = {
                "at": (START + timedelta(seconds=cycle * PERIOD_S))
                .isoformat(timespec="milliseconds")
                .replace("+00:00", "Z"),
                "phase": phase,
                "period_s": PERIOD_S,
                "snapshot": observed["snapshot"],
                "plan": plan_to_json(plan, current_accuracy(snapshot)),
                "applied": controlled,
                "measured": observed["measured"],
                "events": events,
            }
            yield line
            cycle += 1
