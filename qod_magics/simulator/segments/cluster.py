"""Nodes, a coordinator and a broker in virtual time: queries over segments under a policy that replicates them.

Within a round all loads of a segment come before its drops, and a copy is dropped only once no pair waits for it. As
long as a load is under way, the copies that are to be dropped answer the share of the missing one.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, fields
from itertools import accumulate
from time import process_time
from typing import Any

from simpy import Environment, Event

from qod_magics.core.engines import MS, Observation, ReplicationPolicy, Round, S
from qod_magics.errors import counted
from qod_magics.policies.of_engines import replication_policy
from qod_magics.simulator.segments.scenario import (
    Books,
    MemoryOverTime,
    Node,
    Pair,
    Query,
    SegmentScenario,
    Slices,
    queries,
)


@dataclass(slots=True)
class _Targets:
    """Nodes that answer a segment's pairs now, by weight."""

    nodes: list[Node]
    until: list[int]


class SegmentCluster:
    """One run. `run` it, then read `books`, `memory`, `latencies` and `makespan`."""

    def __init__(self, scenario: SegmentScenario, policy: ReplicationPolicy) -> None:
        self.scenario, self.policy = scenario, policy
        self.env = Environment()
        self.slices = Slices(scenario)
        self.books, self.memory = Books(), MemoryOverTime(scenario.warm_up, scenario.duration)
        self.nodes = {
            info.name: Node(self.env, info, scenario.load_latency, scenario.load_rate, self._answered, self._loaded)
            for info in scenario.nodes
        }
        self.latencies: list[int] = []  #: ns, of queries asked after the warm-up, in the order of their ends
        self.makespan = 0  #: when the last query was answered, ns
        self.history: list[dict[str, Any]] = []  #: of each round, after its decision
        self.routing: dict[str, dict[str, int]] = {}
        self._names = [self.slices.name(number) for number in range(len(self.slices.size))]
        self._size = dict(zip(self._names, self.slices.size, strict=True))
        self._ended = scenario.kept  #: slices that have ended
        self._newest = scenario.kept - 1
        self._draining: set[tuple[str, str]] = set()  #: (node, segment): to be dropped
        #: by segment: nodes that hold it, those draining included
        self._copies: dict[str, set[str]] = {name: set() for name in self._names}
        self._once: set[str] = set()  #: segments that have had a copy
        self._loading: Counter[str] = Counter()  #: copies on their way, by segment
        self._waiting: dict[str, list[Pair]] = {}  #: pairs of segments without any copy
        self._targets: dict[str, _Targets] = {}
        self._route = random.Random(f"routing {scenario.seed}")
        self._state: Any = None
        self._all_asked = False
        self._at_start = 0  #: copies

    @property
    def live(self) -> tuple[str, ...]:
        """Segments that queries may ask for."""
        return tuple(self._names[self._newest - self.scenario.kept + 1 : self._newest + 1])

    @property
    def at_hand(self) -> tuple[str, ...]:
        """Return those, and the ones that have ended since: their first copies are placed before queries ask for
        them."""
        return tuple(self._names[self._newest - self.scenario.kept + 1 : self._ended])

    def run(self) -> SegmentCluster:
        """Ask all queries, and answer them to the last one."""
        self._begin()
        self.env.process(self._clients())
        self.env.process(self._coordinator())
        if self.scenario.slice is not None:
            self.env.process(self._ends())
        self.env.run()
        self.check()
        return self

    def _begin(self) -> None:
        """Put in memory what the policy asks for before anything was measured."""
        seen = self.observe()
        first, self._state = self.policy.decide(seen, self._state)
        self._refuse(seen, first)
        for name, segment in first.loads:
            self.nodes[name].holds[segment] = self._size[segment]
            self._copies[segment].add(name)
            self._once.add(segment)
        self._at_start = len(first.loads)
        self.routing = {segment: dict(shares) for segment, shares in first.routing.items()}
        self._remember()

    # --- processes ----------------------------------------------------------------------------------------------------

    def _clients(self) -> Generator[Event, None, None]:
        for asked in queries(self.scenario):
            if asked.at > self.env.now:
                yield self.env.timeout(asked.at - int(self.env.now))
            query = Query(asked.at, len(asked.work))
            self.books.queries += 1
            for back, work in enumerate(asked.work):
                pair = Pair(query, self._names[asked.newest - back], work)
                self.books.ask(pair.segment)
                self._send(pair)
        self._all_asked = True

    def _coordinator(self) -> Generator[Event, None, None]:
        while not self._over:
            yield self.env.timeout(self.scenario.round)
            if not self._over:
                self._decide()

    def _ends(self) -> Generator[Event, None, None]:
        """End slices, which take the place of the oldest a while later."""
        slice_, handoff = self.scenario.slice or 0, self.scenario.handoff
        while (self._ended + 1 - self.scenario.kept) * slice_ + handoff < self.scenario.duration:
            yield self.env.timeout(slice_ - (handoff if self._ended > self.scenario.kept else 0))
            self._ended += 1
            yield self.env.timeout(handoff)
            self.routing.pop(self.live[0], None)
            self._newest += 1
            self.books.late += not self._copies[self.live[-1]]
            self._remember()

    @property
    def _over(self) -> bool:
        return self._all_asked and self.books.asked == self.books.answered

    # --- the broker ---------------------------------------------------------------------------------------------------

    def _send(self, pair: Pair) -> None:
        targets = self._targets.get(pair.segment) or self._found(pair.segment)
        if targets is None:
            self._waiting.setdefault(pair.segment, []).append(pair)
            if not self._loading[pair.segment]:
                self.books.on_demand += 1
                wanted = self.routing.get(pair.segment)
                names = list(self.nodes)
                self._load(
                    next(iter(wanted)) if wanted else names[self._names.index(pair.segment) % len(names)], pair.segment
                )
            return
        position = 0
        if len(targets.nodes) > 1:
            position = bisect(targets.until, self._route.randrange(targets.until[-1]))
        targets.nodes[position].ask(pair)

    def _found(self, segment: str) -> _Targets | None:
        """Return shares by the routing table; of copies that are not there yet, evenly by those that are to be
        dropped."""
        holders = self._copies[segment]
        if not holders:
            return None
        row = self.routing.get(segment, {})
        there = {name: share for name, share in row.items() if name in holders}
        others = [name for name in self.nodes if name in holders and name not in row]
        missing = sum(row.values()) - sum(there.values())
        if others and (missing or not there):
            shares = {name: share * len(others) for name, share in there.items()} | dict.fromkeys(others, missing or 1)
        else:
            shares = there
        found = _Targets([self.nodes[name] for name in shares], list(accumulate(shares.values())))
        self._targets[segment] = found
        return found

    def _answered(self, node: Node, pair: Pair) -> None:
        query = pair.query
        self.books.answer(pair.segment, pair.work)
        query.left -= 1
        if not query.left:
            self.books.finished += 1
            self.makespan = int(self.env.now)
            if query.at >= self.scenario.warm_up:
                self.latencies.append(self.makespan - query.at)
        if (node.name, pair.segment) in self._draining:
            self._drop_if_free(node.name, pair.segment)

    # --- the coordinator ----------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """Return what the policy sees."""
        held = {name: {s for s in node.holds if (name, s) not in self._draining} for name, node in self.nodes.items()}
        for name, node in self.nodes.items():
            held[name] |= {segment for segment, _ in node.loads if (name, segment) not in self._draining}
        infos = self.scenario.nodes
        equal = len({info.cores for info in infos}) == 1
        return Observation(
            self.at_hand,
            tuple(self.nodes),
            {name: frozenset(there) for name, there in held.items()},
            self.books.use(),
            self._size,
            {} if equal else {info.name: info.cores for info in infos},
            {info.name: info.memory for info in infos if info.memory is not None},
        )

    def _decide(self) -> None:
        seen = self.observe()
        round_, self._state = self.policy.decide(seen, self._state)
        self.books.rounds += 1
        self.apply(seen, round_)
        self.check()

    def apply(self, seen: Observation, round_: Round) -> None:
        """Carry out a round. Raises RuntimeError for one that is impossible: nothing of it is done then."""
        self._refuse(seen, round_)
        self.routing = {segment: dict(shares) for segment, shares in round_.routing.items()}
        self._targets.clear()
        for name, segment in round_.loads:
            self._load(name, segment)
        self._draining |= set(round_.drops)
        for name, segment in round_.drops:
            if self.nodes[name].cancel(segment):
                self.books.called_off += 1
                self._loading[segment] -= 1
                self._draining.remove((name, segment))
        for name, segment in sorted(self._draining):
            self._drop_if_free(name, segment)
        planned = {name: set(there) for name, there in seen.held.items()}
        for name, segment in round_.loads:
            planned[name].add(segment)
        for name, segment in round_.drops:
            planned[name].discard(segment)
        self.history.append(
            {
                "at": int(self.env.now),
                "segments": len(seen.segments),
                "copies": sum(len(there) for there in planned.values()),
                "bytes": sum(self._size[s] for there in planned.values() for s in there),
                "largest": max(sum(self._size[s] for s in there) for there in planned.values()),
                "loads": len(round_.loads),
                "drops": len(round_.drops),
                "use": dict(seen.use),
                "holders": {s: tuple(n for n in planned if s in planned[n]) for s in seen.segments},
            }
        )

    def _refuse(self, seen: Observation, round_: Round) -> None:
        held = {name: set(there) for name, there in seen.held.items()}
        for name, segment in round_.loads:
            if segment in held[name]:
                raise RuntimeError(f"{self.policy.name} loads {segment} on {name}, which has it")
            held[name].add(segment)
        for name, segment in round_.drops:
            if segment not in held[name]:
                raise RuntimeError(f"{self.policy.name} drops {segment} on {name}, which does not have it")
            held[name].remove(segment)
        kept = set().union(*held.values())
        for segment in seen.segments:
            if segment not in kept:
                raise RuntimeError(f"{self.policy.name} leaves {segment} without a copy")

    def _load(self, name: str, segment: str) -> None:
        if (name, segment) in self._draining:  # it was to be dropped, and is wanted again
            self._draining.remove((name, segment))
            self._targets.pop(segment, None)
            return
        self.books.ordered += 1
        self._loading[segment] += 1
        self.nodes[name].load(segment, self._size[segment], first=not self._copies[segment])

    def _loaded(self, node: Node, segment: str) -> None:
        self.books.loaded += 1
        self.books.loaded_bytes += self._size[segment]
        self._loading[segment] -= 1
        self._copies[segment].add(node.name)
        self._once.add(segment)
        self._targets.pop(segment, None)
        self._remember()
        for pair in self._waiting.pop(segment, []):
            self._send(pair)
        for name in list(self._copies[segment]):
            if (name, segment) in self._draining:
                self._drop_if_free(name, segment)

    def _drop_if_free(self, name: str, segment: str) -> None:
        node, wanted = self.nodes[name], segment in self.at_hand
        if segment not in node.holds or node.pinned[segment] or (self._loading[segment] and wanted):
            return
        if self._copies[segment] == {name} and (wanted or self.books.under_way[segment]):
            return
        node.drop(segment)
        self._draining.remove((name, segment))
        self._copies[segment].remove(name)
        self._targets.pop(segment, None)
        self.books.dropped += 1
        self._remember()

    def _remember(self) -> None:
        copies = sum(len(node.holds) for node in self.nodes.values())
        used = [node.used for node in self.nodes.values()]
        self.memory.change(int(self.env.now), copies, sum(1 for there in self._copies.values() if there), used)

    # --- books --------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise AssertionError where the books do not balance, or a segment that queries may ask for has no copy."""
        books, waiting = self.books, sum(len(pairs) for pairs in self._waiting.values())
        there = sum(len(node.queue) + len(node.running) for node in self.nodes.values())
        assert books.asked == books.answered + waiting + there, f"{books}: {waiting} pairs wait, {there} are at nodes"
        assert sum(books.under_way.values()) == waiting + there
        assert sum(books.per_segment.values()) == books.asked
        copies = sum(len(node.holds) for node in self.nodes.values())
        assert copies == self._at_start + books.loaded - books.dropped, f"{books}: {copies} copies"
        in_flight = sum(len(node.loads) for node in self.nodes.values())
        assert (
            books.ordered
            == books.loaded + books.called_off + in_flight
            == books.loaded + books.called_off + sum(self._loading.values())
        )
        for name, node in self.nodes.items():
            pinned: Mapping[str, int] = Counter(pair.segment for pair in [*node.queue, *node.running])
            assert pinned == +node.pinned, f"{name}: {pinned} wait or run, {node.pinned} are pinned"
            assert all(name in self._copies[segment] for segment in node.holds)
            assert len(node.running) <= node.info.cores
            assert not node.queue or len(node.running) == node.info.cores, f"{name} is idle while pairs wait"
        assert sum(len(there) for there in self._copies.values()) == copies
        for segment in self.live:
            assert self._copies[segment] or segment not in self._once, f"{segment} has lost its last copy"


# --- Results of a run -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Results:
    """A run's figures, after its warm-up; memory in bytes, means over time."""

    policy: str
    queries: int  #: in all
    pairs: int
    mean_ms: float  #: latency of a query: until its last pair is answered
    p50_ms: float
    p99_ms: float
    makespan_s: float  #: when the last of all queries was answered
    after_s: float  #: the same, since the end of the duration: the makespan of a burst
    utilization: float  #: share of the CPU of all nodes, until then
    replication_factor: float  #: mean number of copies / mean number of segments
    copies: float
    memory: float
    largest_node: float  #: of the node that holds most at the time
    most_on_a_node: int
    loads: int  #: in all
    loaded_bytes: int
    drops: int
    on_demand: int  #: loads because a pair found no copy, and none on its way
    late: int  #: segments whose first copy was not there when queries began to ask for them
    rounds: int

    @classmethod
    def of(cls, cluster: SegmentCluster) -> Results:
        """Return the figures of a run that is over."""
        books, memory, latencies = cluster.books, cluster.memory, sorted(cluster.latencies)
        memory.stop(max(int(cluster.env.now), cluster.scenario.duration))
        length, end = max(memory.length, 1), max(cluster.makespan, 1)
        cores = sum(info.cores for info in cluster.scenario.nodes)
        return cls(
            policy=cluster.policy.name,
            queries=books.queries,
            pairs=books.asked,
            mean_ms=sum(latencies) / max(len(latencies), 1) / MS,
            p50_ms=percentile(latencies, 50) / MS,
            p99_ms=percentile(latencies, 99) / MS,
            makespan_s=cluster.makespan / S,
            after_s=max(cluster.makespan - cluster.scenario.duration, 0) / S,
            utilization=sum(node.busy for node in cluster.nodes.values()) / (cores * end),
            replication_factor=memory.copies / max(memory.segments, 1),
            copies=memory.copies / length,
            memory=memory.bytes / length,
            largest_node=memory.largest / length,
            most_on_a_node=memory.most_on_a_node,
            loads=books.loaded,
            loaded_bytes=books.loaded_bytes,
            drops=books.dropped,
            on_demand=books.on_demand,
            late=books.late,
            rounds=books.rounds,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def percentile(values: list[int], percent: int) -> int:
    """Return the least of the sorted values that `percent` % of them do not exceed; 0 of none."""
    return values[max(-(-len(values) * percent // 100), 1) - 1] if values else 0


def run(scenario: SegmentScenario, policy: str | None = None, options: Mapping[str, Any] | None = None) -> Results:
    """Run a scenario under its policy or the one that is named, with its options for that or those given.

    Raises:
        UsageProblem: there is no such policy, or it has no such option.

    """
    return Results.of(begun(scenario, policy, options).run())


def begun(
    scenario: SegmentScenario, policy: str | None = None, options: Mapping[str, Any] | None = None
) -> SegmentCluster:
    """Return the cluster of such a run, which has not run yet."""
    name = scenario.policy if policy is None else policy
    return SegmentCluster(
        scenario, replication_policy(name, scenario.options.get(name) if options is None else options)
    )


def simulated(value: Any, policy: str | None = None) -> str:
    """Run a scenario in its JSON form and word the result: what `python -m qod_magics simulate` prints.

    Raises:
        ScenarioError: the scenario has a wrong or missing field.
        UsageProblem: there is no such policy.

    """
    scenario = SegmentScenario.from_json(value)
    started = process_time()
    found = run(scenario, policy)
    return summary(scenario, found, process_time() - started)


def summary(scenario: SegmentScenario, found: Results, cpu_s: float) -> str:
    """Return the result of a run in a few lines."""
    seconds = scenario.duration / S
    what = f"{counted(len(scenario.nodes), 'node')}, {counted(scenario.kept, 'segment')}"
    return "\n".join(
        (
            f"{seconds:g} s of {what} and {counted(scenario.clients, 'client')} under {found.policy} in {cpu_s:.1f} s "
            f"({seconds / max(cpu_s, 1e-9):,.0f} times as fast); {found.queries:,} queries, {found.pairs:,} pairs, all "
            f"answered after {found.makespan_s:.3f} s; utilization {found.utilization:.0%}",
            f"latency {found.mean_ms:.1f} ms (mean), {found.p50_ms:.1f} ms (median), {found.p99_ms:.1f} ms (99 %)",
            f"{found.replication_factor:.2f} copies of a segment; {found.memory / 1e9:.3g} GB in memory, "
            f"{found.largest_node / 1e9:.3g} GB on the node with most (means over time)",
            f"{counted(found.rounds, 'round')}: {counted(found.loads, 'load')} of {found.loaded_bytes / 1e9:.3g} GB in "
            f"all, {counted(found.drops, 'drop')}, {found.on_demand} because a pair found no copy",
        )
    )
