"""The results of a run: latencies, copies, memory, and the text that `simulate` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from time import process_time
from typing import Any

from qod_magics.core.engines import MS, S
from qod_magics.core.wording import counted
from qod_magics.policies.of_engines import replication_policy
from qod_magics.simulator.segments.cluster import SegmentCluster
from qod_magics.simulator.segments.scenario import SegmentScenario


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
