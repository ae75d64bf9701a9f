"""Windows that several workers execute, in the engine: markers, and results that don't depend on the policy."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.core.engines import MS, US, Kind, Message
from qod_magics.errors import UsageProblem
from qod_magics.policies.dirigo import CentralRandom, LaxityBasedDirect, Options, RejectSend
from qod_magics.simulator.messages import Dataflow, Engine, Job, Source, Stage
from qod_magics.simulator.messages.dataflow import Sent
from qod_magics.simulator.messages.operators import (
    Aggregate,
    Ends,
    MarkerSource,
    Merging,
    Part,
    PartialWindows,
    Windowed,
)
from tests.policies.dirigo.oracles import marker_count, oracle
from tests.policies.dirigo.runs import POLICIES
from tests.raising import breaks
from tests.simulator.messages.listed import Listed

WINDOW_MS = 10
Event = tuple[int, int]  # ms, key


def engine_of(
    policy: str,
    clients: list[list[Event]],
    *,
    workers: int = 3,
    latency_ms: float = 2.0,
    delay_us: float = 100,
    options: Options | None = None,
) -> Engine:
    """Each client sends its events, each in a message of 1 ms, and one at the end, that closes the windows."""
    last = max(((at // WINDOW_MS + 1) * WINDOW_MS for events in clients for at, _ in events), default=0) + 1
    sources = tuple(
        Source(
            f"s{number}",
            arrivals=Listed(tuple(Sent(at * MS, at * MS, 1, key) for at, key in [*sorted(events), (last, 0)])),
        )
        for number, events in enumerate(clients)
    )
    names = tuple(source.name for source in sources)
    windows = Stage("count", names, fixed_us=1000, slide_ms=WINDOW_MS, partial=True, hand_on_us=100)
    merge = Stage("merge", ("count",), fixed_us=100)
    job = Job("job", (windows, merge), sources, max_latency_ms=latency_ms)
    dispatcher = POLICIES[policy](options)
    engine = Engine(Dataflow([job], machines=workers, delay_us=delay_us), dispatcher)
    engine.run(10**11, end=10**12)
    engine.check()
    assert engine.books.left == 0
    return engine


def merged(engine: Engine) -> dict[int, tuple[int, int]]:
    """Rows and the largest key, by the window's end in ms."""
    windows, merge = engine.operators
    assert isinstance(windows, PartialWindows)
    assert isinstance(merge, Merging)
    assert windows.late == 0
    return {end // MS: (each.rows, each.largest) for end, each in merge.merged.items() if each.rows}


EVENTS = st.lists(st.tuples(st.integers(1, 35), st.integers(0, 99)), max_size=12)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=12)
@given(
    clients=st.lists(EVENTS, min_size=1, max_size=3),
    number=st.sampled_from([None, 1, 2]),
    latency=st.sampled_from([0.5, 3.0, 50.0]),
    seed=st.integers(0, 3),
)
def test_results_are_the_same_under_every_policy(
    policy: str, clients: list[list[Event]], number: int | None, latency: float, seed: int
) -> None:
    expected: dict[int, tuple[int, int]] = {}
    for at, key in (event for events in clients for event in events):
        end = (at // WINDOW_MS + 1) * WINDOW_MS
        rows, largest = expected.get(end, (0, -1))
        expected[end] = (rows + 1, max(largest, key))
    options = Options(parallelism_range=number, marker_cost=seed * 50_000, seed=seed)
    assert merged(engine_of(policy, clients, latency_ms=latency, options=options)) == expected


def test_markers_are_counted_as_in_the_case() -> None:
    case = oracle("marker-count")
    for each, expected in zip(case["input"], case["expected"], strict=True):
        assert marker_count(each["M"], each["N"], by_lessor=False) == expected["LaxityBasedDirect"]
        assert marker_count(each["M"], each["N"], by_lessor=True) == expected["1RTT-RejectSend"]
    assert len(case["input"]) == 7


@pytest.mark.parametrize("number", [0, 1, 4, 6])
def test_markers_are_sent_as_they_are_counted(number: int) -> None:
    case = oracle("marker-count")
    each, expected = case["input"][number], case["expected"][number]
    clients: list[list[Event]] = [[(1, 0)]] * each["M"]
    options = Options(parallelism_range=each["N"])
    for name, kind in (("LaxityBasedDirect", LaxityBasedDirect), ("1RTT-RejectSend", RejectSend)):
        engine = engine_of(name, clients, workers=max(each["N"], 2), options=options)
        assert isinstance(engine.dispatcher, kind)
        assert engine.dispatcher.traffic.markers == expected[name]
        assert engine.executed[1] == each["N"]  # parts for the final aggregator


def test_parts_are_merged_as_in_the_case() -> None:
    case = oracle("marker-merge")
    for early in (False, True):
        partials, merge = PartialWindows(10, 10, 0, [-2, -3]), Merging(1)
        placed = {int(machine): list(values) for machine, values in case["input"]["placed"].items()}
        emitted: list[Any] = []

        def run(machine: int, kind: Kind, key: int, partials: PartialWindows = partials) -> tuple[Any, ...]:
            marker = kind is Kind.MARKER
            message = Message(
                1, 0, -1, progress=10, event_time=9, kind=kind, key=key, payload=len("012") if marker else None
            )
            message.at = machine
            return partials.execute(message)

        for machine, values in placed.items():
            for value in [] if early and machine == 1 else values:
                assert run(machine, Kind.DATA, value) == ()
        for machine in placed:
            emitted += run(machine, Kind.MARKER, -1)
        if early:
            assert run(1, Kind.DATA, 9) == ()
            assert partials.late == 1
        else:
            parts = {str(machine): each.part.aggregate for machine, each in zip(placed, emitted, strict=True)}
            found = {machine: {"count": each.rows, "max": each.largest} for machine, each in parts.items()}
            assert found == case["expected"]["partials"]
        results = [merge.execute(Message(1, 1, 0, progress=10, rows=each.rows, payload=each.part)) for each in emitted]
        assert results[:2] == [(), ()]
        result = merge.merged[10]
        assert {"count": result.rows, "max": result.largest} == case["expected"]["early" if early else "result"]


def test_messages_of_a_window_that_ends_run_before_all_others() -> None:
    """One worker, many late messages of the next window: the window's end doesn't wait for these."""
    clients: list[list[Event]] = [[(9, 0)] * 5 + [(11, 0)] * 30]
    engine = engine_of("1RTT-RejectSend", clients, workers=1)
    produced = [at // MS for at in engine.results.jobs[0].produced]
    assert produced[0] < 18


@pytest.mark.parametrize("policy", ["2RTT-Sequential", "2RTT-Pipelined", "2RTT-Parallel"])
def test_a_window_does_not_end_while_its_messages_are_set_aside(policy: str) -> None:
    """The search begins at 11 ms and ends at 13; the marker reaches the lessor at 12."""
    engine = engine_of(policy, [[(9, 3)] * 5], latency_ms=0.5, delay_us=1000)
    assert engine.dispatcher.traffic.requests > 0
    assert merged(engine) == {10: (5, 3)}


def plain(policy: str, events_us: list[int], *, parse_us: float, latency_ms: float, seed: int = 0) -> Engine:
    """A window of 10 ms that nobody merges, behind another operator."""
    sent = tuple(Sent(at * US, at * US, 1) for at in events_us)
    stages = (
        Stage("parse", ("in",), fixed_us=parse_us),
        Stage("count", ("parse",), fixed_us=300, slide_ms=WINDOW_MS),
        Stage("sink", ("count",), fixed_us=100),
    )
    options = Options(seed=seed)
    dispatcher = CentralRandom(options) if policy == "central" else POLICIES[policy](options)
    job = Job("job", stages, (Source("in", arrivals=Listed(sent)),), latency_ms)
    engine = Engine(Dataflow([job], machines=3, delay_us=100), dispatcher)
    engine.run(10**11, end=10**12)
    engine.check()
    return engine


@pytest.mark.parametrize("policy", [*POLICIES, "central"])
def test_windows_that_nobody_merges_see_their_channels_in_order(policy: str) -> None:
    for seed in range(6):
        engine = plain(policy, [9000] * 6 + [11000] * 3 + [21000], parse_us=5000, latency_ms=0.5, seed=seed)
        window = engine.operators[1]
        assert isinstance(window, Windowed)
        assert window.late == 0
        assert engine.results.jobs[0].rows == 9


def test_a_later_message_of_a_channel_does_not_overtake_when_costs_become_known() -> None:
    """The window's cost is known from 10.1 ms on; it takes 0.3 ms off the last deadline, sent 0.25 ms later."""
    engine = plain("SBS", [5000, 5001, 9950, 10200], parse_us=5000, latency_ms=50)
    window = engine.operators[1]
    assert isinstance(window, Windowed)
    assert window.late == 0


def test_windows_need_lessees_that_send_nothing_back() -> None:
    with pytest.raises(UsageProblem, check=breaks("force_migrate")):
        engine_of("1RTT-RejectSend", [[(1, 0)]], options=Options(force_migrate=False))


def test_aggregates_merge_in_any_order() -> None:
    parts = [Aggregate(1, 5, 2), Aggregate(0, -1, 0), Aggregate(3, 2, 9)]
    one, two, three = parts
    assert one.merged(two).merged(three) == three.merged(one.merged(two)) == Aggregate(4, 5, 9)


def test_a_result_waits_for_the_parts_of_every_operator() -> None:
    merge = Merging(2)
    for operator, parts, complete in ((0, 2, False), (0, 2, False), (1, 1, True)):
        part = Part(operator, parts, Aggregate(1, operator, 0))
        assert bool(merge.execute(Message(1, 2, operator, progress=10, payload=part))) is complete
    assert merge.merged[10].rows == 3
    assert merge.waiting == 0


def test_a_client_that_reaches_the_end_of_a_window_marks_it() -> None:
    source = MarkerSource({0: [Ends(operator=4, slide=10, next=10, work=7)]})
    assert list(source.markers(0, 1, 9, count())) == []
    assert [(each.progress, each.operator, each.work) for each in source.markers(0, 2, 10, count())] == [(10, 4, 7)]
    assert [each.progress for each in source.markers(0, 3, 35, count())] == [20, 30]
    assert list(source.markers(1, 3, 35, count())) == []


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ((Stage("count", ("in",), partial=True),), "window"),
        ((Stage("first", ("in",)), Stage("count", ("first",), slide_ms=10, partial=True)), "sources"),
        (
            (Stage("count", ("in",), slide_ms=10, partial=True), Stage("merge", ("count",), width=2)),
            "width 1",
        ),
    ],
)
def test_partial_windows_that_cannot_be_merged_are_refused(stages: tuple[Stage, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Job("job", stages, (Source("in"),))
