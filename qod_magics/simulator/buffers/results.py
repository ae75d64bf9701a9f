"""The results of a run: latencies of every interval, actions and throughput; as a summary, and as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qod_magics.core.engines import MS, S
from qod_magics.core.job_graph import Chain, Channel, Instruction, JobSequence, Resize, Task
from qod_magics.errors import counted
from qod_magics.simulator.buffers.scenario import BufferScenario, Item
from qod_magics.simulator.buffers.tasks import ChannelRun, TaskRun

KINDS = {"Resize": "new buffer size", "Chain": "chain", "CannotBeMet": "report that a limit cannot be met"}


@dataclass(frozen=True, slots=True)
class Action:
    """An instruction of a manager."""

    at: int  #: ns
    worker: str  #: of the manager
    instruction: Instruction
    done: bool  #: False: it came too late, since another one had changed the same

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, for a line of a record."""
        instruction = self.instruction
        if isinstance(instruction, Resize):
            what: dict[str, Any] = {"resize": str(instruction.channel), "bytes": instruction.bytes}
        elif isinstance(instruction, Chain):
            what = {"chain": [str(task) for task in instruction.tasks], "queued": instruction.queued}
        else:
            what = {"cannot_be_met": [str(task) for task in instruction.tasks], "latency_ms": instruction.latency_ms}
        return {"at_s": self.at / S, "manager": self.worker, **what, "done": self.done}


@dataclass(frozen=True, slots=True)
class Interval:
    """Means over one interval, ms. Of the sequences of the first constraint: `mean`, `least` and `most` of the sums of
    their elements' means, over those whose elements all have one (the estimate of N21, from all items); `exact`: mean
    over items by Eq. 1."""

    end_s: float
    mean: float | None
    least: float | None
    most: float | None
    exact: float | None
    #: by vertex, and by edge such as "P-D"
    elements: Mapping[str, float]
    #: of an edge's latency, what is spent in output buffers
    buffered: Mapping[str, float]
    items_in: int
    items_out: int  #: source items whose sequence has ended

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, for a line of a record."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class _Spread:
    """Number, sum, least and most of the latencies of sequences up to a task."""

    count: int
    total: float
    least: float
    most: float

    def plus(self, ms: float) -> _Spread:
        return _Spread(self.count, self.total + self.count * ms, self.least + ms, self.most + ms)

    def join(self, other: _Spread) -> None:
        self.count += other.count
        self.total += other.total
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)


@dataclass
class Results:
    """Filled while the simulation runs."""

    scenario: BufferScenario
    policy: str  #: its name
    channels: Mapping[Channel, ChannelRun]
    tasks: Mapping[Task, TaskRun]
    intervals: list[Interval] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    items_out: int = 0  #: that entered a sink
    last_out: int = 0  #: when the last of them did, ns
    latency_sum: int = 0  #: ns, over source items that have a sequence latency
    latency_count: int = 0
    _exact: list[int] = field(default_factory=lambda: [0, 0])  #: of this interval: number, sum of ns
    _in: int = 0

    def leave(self, item: Item, now: int) -> None:
        """Count an item that enters a sink."""
        self.items_out += 1
        self.last_out = now
        latency = item.origins * now - item.origin_sum
        self.latency_count += item.origins
        self.latency_sum += latency
        self._exact[0] += item.origins
        self._exact[1] += latency

    @property
    def items_in(self) -> int:
        """Items that sources have emitted."""
        return sum(run.emitted for run in self.tasks.values() if run.vertex.kind == "source")

    def end_interval(self, now: int) -> None:
        """Take down the means of the interval that ends."""
        channels, buffered, chained = {}, {}, set()
        for channel, run in self.channels.items():
            if run.is_chained:
                chained.add(channel)
            found = run.meter.take()
            if found is not None and not run.is_chained:
                channels[channel], buffered[channel] = found
        tasks = {task: ms for task, run in self.tasks.items() if (ms := run.meter.take()) is not None}
        channels.update(dict.fromkeys(chained, 0.0))
        buffered.update(dict.fromkeys(chained, 0.0))
        spread = None
        if self.scenario.constraints:
            spread = self._sequences(self.scenario.constraints[0].sequence, tasks, channels)
        count, total = self._exact
        self._exact = [0, 0]
        emitted = self.items_in
        self.intervals.append(
            Interval(
                now / S,
                spread.total / spread.count if spread else None,
                spread.least if spread else None,
                spread.most if spread else None,
                total / count / MS if count else None,
                {**_by(tasks, lambda task: task.vertex), **_by(channels, _edge)},
                _by(buffered, _edge),
                emitted - self._in,
                count,
            )
        )
        self._in = emitted

    def _sequences(
        self, sequence: JobSequence, tasks: Mapping[Task, float], channels: Mapping[Channel, float]
    ) -> _Spread | None:
        """Return the figures of all runtime sequences whose elements are known."""
        graph = self.scenario.graph

        def own(position: int, task: Task) -> float | None:
            return tasks.get(task) if sequence.is_element(position) else 0.0

        until: dict[Task, _Spread] = {}
        for task in graph.tasks(sequence.path[0]):
            ms = own(0, task)
            if ms is not None:
                until[task] = _Spread(1, ms, ms, ms)
        for i, vertex in enumerate(sequence.path[1:], 1):
            reached: dict[Task, _Spread] = {}
            for task in graph.tasks(vertex):
                ms = own(i, task)
                if ms is None:
                    continue
                for sender in graph.senders(task, sequence.path[i - 1]):
                    channel = channels.get(Channel(sender, task))
                    if channel is None or sender not in until:
                        continue
                    found = until[sender].plus(channel + ms)
                    if task in reached:
                        reached[task].join(found)
                    else:
                        reached[task] = found
            until = reached
        total: _Spread | None = None
        for found in until.values():
            if total is None:
                total = found
            else:
                total.join(found)
        return total

    def check(self) -> None:
        """Raise AssertionError if the counts of items and bytes do not balance."""
        wrong = list(unbalanced(self.channels, self.tasks))
        assert not wrong, f"the books of the simulation do not balance: {'; '.join(wrong[:5])}"

    @property
    def mean_latency_ms(self) -> float | None:
        """Mean over the source items of the whole run (Eq. 1)."""
        return self.latency_sum / self.latency_count / MS if self.latency_count else None

    def counts(self) -> dict[str, int]:
        """Return actions that were carried out, by kind."""
        found: dict[str, int] = {}
        for action in self.actions:
            if action.done:
                name = type(action.instruction).__name__
                found[name] = found.get(name, 0) + 1
        return found


def unbalanced(channels: Mapping[Channel, ChannelRun], tasks: Mapping[Task, TaskRun]) -> Iterator[str]:
    """Yield what does not add up: at channels items and bytes, at tasks items."""
    for channel, run in channels.items():
        if run.written != len(run.output.waiting) + run.in_flight + run.arrived + run.dropped:
            yield f"{channel}: {run.written} items written, which are not in buffers, in flight, arrived or dropped"
        if run.arrived != run.entered + run.queued:
            yield f"{channel}: {run.arrived} items arrived, {run.entered} entered and {run.queued} are queued"
        if run.output.written != run.output.shipped + run.output.fill:
            yield f"{channel}: {run.output.written} bytes written, {run.output.shipped} shipped"
    for task, each in tasks.items():
        left = each.vertex.inputs * (each.emitted + each.in_service) + each.holds
        if each.vertex.kind in ("map", "merge") and each.entered != left:
            yield f"{task}: {each.entered} items entered, {each.emitted} emitted, {each.in_service} in service"
        written = sum(run.written for run in {id(r): r for r in each.outputs.values()}.values())
        if each.following is None and each.outputs and written != each.emitted:
            yield f"{task}: {each.emitted} items emitted, {written} written to channels"


def _by(values: Mapping[Any, float], name: Any) -> dict[str, float]:
    """Return the means by name."""
    groups: dict[str, list[float]] = {}
    for key, value in values.items():
        groups.setdefault(name(key), []).append(value)
    return {key: sum(found) / len(found) for key, found in groups.items()}


def _edge(channel: Channel) -> str:
    return f"{channel.sender.vertex}-{channel.receiver.vertex}"


def write(results: Results, path: Path) -> None:
    """Write intervals and actions to a file, as lines of JSON in the order of time."""
    lines = [(each.end_s, {"interval": each.to_json()}) for each in results.intervals]
    lines += [(action["at_s"], {"action": action}) for action in (each.to_json() for each in results.actions)]
    lines.sort(key=lambda line: line[0])
    path.write_text("".join(f"{json.dumps(line)}\n" for _, line in lines), encoding="utf-8")


def summary(results: Results, took_s: float) -> str:
    """Return the result of a run in a few lines. `took_s`: CPU seconds that it took."""
    scenario = results.scenario
    workers = {worker for each in scenario.graph.workers.values() for worker in each}
    lines = [
        f"{scenario.duration_s:g} s of {counted(len(results.tasks), 'task')} on {counted(len(workers), 'worker')} in "
        f"{took_s:.1f} s under {results.policy}; {counted(f'{results.items_in:,}', 'item')} in, "
        f"{results.items_out:,} out",
    ]
    if results.mean_latency_ms is not None:
        lines.append(f"mean latency of all items: {results.mean_latency_ms:,.0f} ms")
    known = [each for each in results.intervals if each.mean is not None]
    for constraint in scenario.constraints[:1]:
        for words, each in zip(("first", "last"), (known[:1], known[-1:]), strict=True):
            lines += [
                f"{words} interval: sequences take {at.mean:,.0f} ms on average, {at.least:,.0f} to {at.most:,.0f}, "
                f"limit {constraint.limit_ms:g}"
                for at in each
            ]
    actions = results.counts()
    done = [counted(actions[name], words) for name, words in KINDS.items() if name in actions]
    lines.append(f"actions: {', '.join(done) or 'none'}")
    return "\n".join(lines)
