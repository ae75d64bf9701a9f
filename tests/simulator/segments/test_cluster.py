"""Segments in virtual time: exact books, no segment without a copy, the same seed the same run."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simpy import Environment, Event

from qod_magics.core.engines import MS, Round, S
from qod_magics.policies.of_engines import replication_policy
from qod_magics.simulator.segments import SegmentCluster, begun, run
from qod_magics.simulator.segments.scenario import MemoryOverTime, Node, NodeInfo, Pair, Query, Slices, queries
from tests.simulator.segments.clusters import small

POLICIES = [
    ("getafix", {}),
    ("getafix", {"balance": True, "cost": "bytes"}),
    ("scarlett", {}),
    ("uniform", {"copies": 2}),
]


class Scripted:
    """Answers with one round after another."""

    name = "scripted"

    def __init__(self, *rounds: Round) -> None:
        self.rounds = rounds

    def decide(self, observation, state):
        number = state or 0
        return self.rounds[min(number, len(self.rounds) - 1)], number + 1


@pytest.mark.parametrize(("policy", "options"), POLICIES, ids=str)
def test_every_pair_is_answered_and_the_books_balance(policy, options) -> None:
    cluster = begun(small(), policy, options).run()
    books = cluster.books
    assert books.asked == books.answered > 2500
    assert books.queries == books.finished
    assert (books.late, books.on_demand) == (0, 0)
    assert books.loaded + cluster._at_start - books.dropped == sum(len(n.holds) for n in cluster.nodes.values())
    work = sum(sum(asked.work) for asked in queries(cluster.scenario))
    assert sum(node.busy for node in cluster.nodes.values()) == work
    assert books.asked == sum(len(asked.work) for asked in queries(cluster.scenario))


@settings(max_examples=12)
@given(
    seed=st.integers(0, 1000),
    policy=st.sampled_from(POLICIES),
    cores=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    rate=st.sampled_from([1, 40]),
    behind=st.sampled_from([[1], [0.1, 0.8, 0.1]]),
    storage=st.sampled_from([50, 100_000]),
)
def test_books_balance_in_any_cluster(seed, policy, cores, rate, behind, storage) -> None:
    scenario = small(
        seed=seed,
        duration_s=25,
        nodes=[{"cores": each} for each in cores],
        clients={"queries_per_s": rate},
        queries={"behind": behind},
        deep_storage={"bytes_per_s": storage},
    )
    books = begun(scenario, *policy).run().books  # `run` checks them after each round and at the end
    assert books.asked == books.answered


def test_the_same_seed_gives_the_same_run_and_the_same_queries_under_every_policy() -> None:
    first, again = (run(small(), "getafix") for _ in range(2))
    assert first == again
    assert run(small(seed=4), "getafix") != first
    assert {run(small(), *each).pairs for each in POLICIES} == {first.pairs}


class Watched(SegmentCluster):
    """Writes down what clients ask: when, for which segment, and how much work that is; and when slices end."""

    def __init__(self, scenario, policy) -> None:
        super().__init__(scenario, policy)
        self.asked: dict[Pair, tuple[int, int, str, int]] = {}
        self.ended: list[tuple[int, tuple[str, ...]]] = []

    def _send(self, pair: Pair) -> None:
        # a pair that waited for a first copy is sent again
        self.asked.setdefault(pair, (int(self.env.now), pair.query.at, pair.segment, pair.work))
        super()._send(pair)

    def _ends(self) -> Generator[Event, None, None]:
        for event in super()._ends():
            self.ended.append((self.env.now, self.at_hand))
            yield event


@settings(max_examples=5, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    behind=st.sampled_from([[1], [0.1, 0.8, 0.1]]),
    burst=st.sampled_from([0, 50]),
    storage=st.sampled_from([50, 100_000]),
)
def test_queries_work_slices_and_sizes_are_the_same_under_every_policy(seed, behind, burst, storage) -> None:
    scenario = small(
        seed=seed,
        duration_s=25,
        clients={"burst": burst},
        queries={"behind": behind},
        deep_storage={"bytes_per_s": storage},
    )
    runs = [Watched(scenario, replication_policy(*each)) for each in POLICIES]
    for each in runs:
        each.run()
    first = runs[0]
    assert len(first.asked) > 900
    for each in runs[1:]:
        assert [*each.asked.values()] == [*first.asked.values()]
        assert each.ended == first.ended
        assert each.slices.size == first.slices.size
    assert len({tuple(each.latencies) for each in runs}) == len(runs)  # in what they do they differ


def test_the_newest_segment_takes_the_place_of_the_oldest() -> None:
    slices = Slices(small())
    assert [slices.newest(at * S) for at in (0, 13, 14, 23, 24, 34)] == [3, 3, 4, 4, 5, 6]
    cluster = begun(small(), "getafix").run()
    assert cluster.live == tuple(slices.name(number) for number in range(3, 7))
    newest = {asked.newest for asked in queries(small())}
    assert newest == {3, 4, 5, 6}


def test_loads_come_before_drops_and_the_old_copy_answers_meanwhile() -> None:
    scenario = small(segments={"kept": 1, "slice_s": 60}, round_s=5, duration_s=20)
    one = Round({"slice0000": {"node1": 1}}, (("node1", "slice0000"),))
    moved = Round({"slice0000": {"node2": 1}}, (("node2", "slice0000"),), (("node1", "slice0000"),))
    other = Round({"slice0000": {"node2": 1}})
    cluster = SegmentCluster(scenario, Scripted(one, moved, other)).run()
    node1, node2 = cluster.nodes["node1"], cluster.nodes["node2"]
    took = 100 * MS + -(-cluster.slices.size[0] * S // 400)
    before = sum(sum(asked.work) for asked in queries(scenario) if asked.at < 5 * S + took)
    assert node1.busy == before > 0
    assert node2.busy > 0
    assert not node1.holds
    assert (cluster.books.loaded, cluster.books.dropped) == (1, 1)


def test_no_copy_is_dropped_while_a_load_of_its_segment_is_under_way() -> None:
    both = {"node1": 1, "node2": 1}
    first = Round({"slice0000": both}, (("node1", "slice0000"), ("node2", "slice0000")))
    drops = (("node1", "slice0000"), ("node2", "slice0000"))
    moved = Round({"slice0000": {"node3": 1}}, (("node3", "slice0000"),), drops)
    scenario = small(
        segments={"kept": 1, "slice_s": 90},
        clients={"queries_per_s": 5},
        queries={"kinds": [{"name": "short", "share": 1, "ms": 0.01}]},
        deep_storage={"bytes_per_s": 50},
        round_s=5,
        warm_up_s=0,
    )
    cluster = SegmentCluster(scenario, Scripted(first, moved, Round({"slice0000": {"node3": 1}}))).run()
    cluster.memory.stop(40 * S)
    until = 5 * S + 100 * MS + -(-cluster.slices.size[0] * S // 50)
    assert cluster.memory.copies == pytest.approx(2 * until + (40 * S - until), rel=1e-4)


@pytest.mark.parametrize(
    ("loads", "drops", "words"),
    [
        ([("node1", "slice0000")], [], "node1"),
        ([], [("node2", "slice0000")], "node2"),
        ([], [("node1", "slice0000")], "slice0000"),
    ],
)
def test_an_impossible_round_is_refused(loads, drops, words) -> None:
    first = Round({"slice0000": {"node1": 1}}, (("node1", "slice0000"),))
    wrong = Round({"slice0000": {"node1": 1}}, tuple(loads), tuple(drops))
    cluster = SegmentCluster(small(segments={"kept": 1, "slice_s": 60}), Scripted(first, wrong))
    with pytest.raises(RuntimeError, match=words):
        cluster.run()


def test_a_load_that_has_not_begun_is_called_off() -> None:
    row = {f"slice000{i}": {"node1": 1} for i in range(3)}
    first = Round(row, tuple(("node1", segment) for segment in row))
    both = Round(row, (("node2", "slice0000"), ("node2", "slice0001")))
    off = Round(row, (), (("node2", "slice0000"), ("node2", "slice0001")))
    storage = {"bytes_per_s": 10}  # each takes 10 s or more
    scenario = small(segments={"kept": 3, "slice_s": 90}, deep_storage=storage, duration_s=60)
    books = SegmentCluster(scenario, Scripted(first, both, off, Round(row))).run().books
    assert (books.ordered, books.called_off, books.loaded, books.dropped) == (2, 1, 1, 1)


def test_a_node_answers_in_order_with_all_its_cores() -> None:
    env, ends = Environment(), []
    node = Node(env, NodeInfo("n", 2), 0, S, lambda _, pair: ends.append((env.now, pair.work)), lambda *_: None)
    node.holds["s"] = 1
    for work in (5, 3, 4, 1):
        node.ask(Pair(Query(0, 1), "s", work))
    env.run()
    assert ends == [(3, 3), (5, 5), (6, 1), (7, 4)]
    assert node.busy == 13
    with pytest.raises(RuntimeError):
        node.ask(Pair(Query(0, 1), "other", 1))


def test_one_server_waits_as_queueing_theory_says() -> None:
    # M/M/1 at half load: the mean time in the system is service / (1 - 1/2)
    scenario = small(
        segments={"kept": 1, "slice_s": 9999},
        nodes=[{"count": 1}],
        clients={"count": 1, "queries_per_s": 50},
        duration_s=600,
        warm_up_s=10,
    )
    found = run(scenario, "uniform", {"copies": 1})
    assert found.utilization == pytest.approx(0.5, rel=0.03)
    assert found.mean_ms == pytest.approx(20.0, rel=0.06)
    assert found.replication_factor == 1.0


def test_memory_is_counted_from_the_warm_up_until_the_duration_ends() -> None:
    memory = MemoryOverTime(10, 100)
    for at, copies in ((0, 5), (4, 1), (30, 2), (80, 4), (120, 50)):
        memory.change(at, copies, 1, [copies, 7])
    memory.stop(150)
    assert (memory.length, memory.segments) == (90, 90)
    assert memory.copies == 20 * 1 + 50 * 2 + 20 * 4
    assert memory.bytes == memory.copies + 7 * 90
    assert memory.largest == 7 * 90
    assert memory.most_on_a_node == 7


def test_a_burst_is_asked_at_once_and_takes_its_work_over_all_nodes_at_least() -> None:
    plain, burst = small(), small(clients={"burst": 300})
    more = list(queries(burst))[len(list(queries(plain))) :]
    assert {asked.at for asked in more} == {burst.duration}
    assert len(more) == 300
    found = run(burst, "uniform", {"copies": 3})
    work = sum(sum(asked.work) for asked in more) / S
    assert work / 3 <= found.after_s < work / 2
    assert run(plain, "uniform", {"copies": 3}).after_s < 0.5


def test_uniform_copies_are_counted_over_time() -> None:
    found = run(small(segments={"kept": 4, "slice_s": 9999, "bytes": [100, 100]}), "uniform", {"copies": 3})
    assert (found.replication_factor, found.copies, found.memory, found.largest_node) == (3.0, 12.0, 1200.0, 400.0)
    assert (found.loads, found.drops) == (0, 0)
