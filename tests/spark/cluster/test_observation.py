"""From readings to a snapshot: always valid, and what is not known is never passed off as a measured 0."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.load import current_accuracy
from qod_magics.core.runtime import Count, Observation
from qod_magics.core.snapshot import Freshness, TaskManager, replace
from qod_magics.core.validation import check_snapshot
from qod_magics.policies.stream_economics import StreamEconomics
from qod_magics.spark.cluster.observation import InstanceView, TaskView, observation
from qod_magics.spark.queries.meter import MeterReading

FRESH_S = 12.5
MANAGERS = (TaskManager("tm1", 0.9, 40.0), TaskManager("tm2", 0.9, 10.0))


def reading(rate: float = 100.0, *, cpu: float | None = 30.0, **changes: Any) -> MeterReading:
    values: dict[str, Any] = {
        "in_rate": rate,
        "read_rate": rate,
        "out_rate": rate,
        "cpu": cpu,
        "since": -5.0,
        "at": 0.0,
        "first_batch_at": 0.0,
        "kept": {},
        "read": {},
        "out": 0,
        "sent": {},
    }
    return MeterReading(**{**values, **changes})


def view(
    task: str, found: MeterReading | None, *, current: bool = True, age_s: float = 1.0, index: int = 1
) -> InstanceView:
    return InstanceView(f"{task}.{index}", task, "tm1", found, current, age_s, {"state": "running"})


def source(id: str = "S", rate: float | None = 100.0, outlets: tuple[str, ...] = ("S>Q",)) -> TaskView:
    return TaskView(id, (), None, None, {id: f"topic-{id}"}, outlets, rate)


def query(id: str = "Q", *upstream: str) -> TaskView:
    upstream = upstream or ("S",)
    return TaskView(id, upstream, 1, 0.5, {f"{u}>{id}": f"topic-{u}-{id}" for u in upstream}, (), None)


def observed(tasks: list[TaskView], views: list[InstanceView], **measured: Any) -> Observation:
    values: dict[str, Any] = {"lag": {}, "input_rate": {}, "counts": {}, "dropped_sending": {}}
    return observation(MANAGERS, tasks, views, **{**values, **measured}, fresh_for_s=FRESH_S, events=())


def found(seen: Observation, id: str) -> Any:
    return next(i for i in seen.snapshot.instances if i.id == id)


def test_what_was_measured_is_what_is_said() -> None:
    seen = observed([source(), query()], [view("S", reading(90, cpu=20)), view("Q", reading(45, cpu=33))])
    check_snapshot(seen.snapshot)
    assert (found(seen, "S.1").in_rate, found(seen, "Q.1").cpu) == (90, 33)
    assert seen.snapshot.streams[0].out_rate == 90
    assert seen.snapshot.tasks[0].external_rate == 100
    assert seen.snapshot.tasks[1].external_rate is None
    assert seen.fresh == {"S.1": True, "Q.1": True}
    assert Freshness.of(found(seen, "Q.1")).is_fresh


def test_the_reading_of_the_run_before_is_held_and_says_so() -> None:
    held = view("Q", reading(45, cpu=33), current=False, age_s=3.14159)
    seen = observed([source(), query()], [view("S", reading()), held])
    one = found(seen, "Q.1")
    assert (one.in_rate, one.cpu) == (45, 33)
    assert one.stale is True
    assert one.age_s == 3.1
    assert seen.fresh == {"S.1": True, "Q.1": False}


@pytest.mark.parametrize(("age_s", "stale"), [(FRESH_S, False), (FRESH_S + 0.1, True)])
def test_a_silent_instance_grows_stale(age_s: float, stale: bool) -> None:
    seen = observed([source(), query()], [view("S", reading()), view("Q", reading(45), age_s=age_s)])
    assert found(seen, "Q.1").in_rate == 45
    assert found(seen, "Q.1").stale is stale
    assert seen.fresh["Q.1"] is not stale


def test_one_that_never_reported_reads_its_share_of_what_comes() -> None:
    views = [view("S", reading(80)), view("Q", None), view("Q", None, index=2)]
    seen = observed([source(), query()], views)
    for id in ("Q.1", "Q.2"):
        assert found(seen, id).in_rate == 40
        assert found(seen, id).missing == ("in_rate", "cpu")
        assert not seen.fresh[id]


def test_a_source_that_never_reported_reads_what_the_outside_brings() -> None:
    seen = observed([source(rate=70.0), query()], [view("S", None), view("Q", None)])
    assert found(seen, "S.1").in_rate == found(seen, "Q.1").in_rate == seen.snapshot.streams[0].out_rate == 70


def test_unknown_cpu_is_named() -> None:
    seen = observed([source(), query()], [view("S", reading()), view("Q", reading(45, cpu=None))])
    assert found(seen, "Q.1").missing == ("cpu",)
    assert not seen.fresh["Q.1"]


def test_a_report_from_before_the_first_rows_is_no_rate_of_them() -> None:
    """An idle real-time query reports batches without a row every five seconds; then rows come."""
    idle = replace(view("S", reading(0, cpu=4), age_s=3.0), came=0.0)
    waiting = replace(view("Q", reading(0, cpu=2), age_s=2.0), came=0.0)
    seen = observed([replace(source(rate=80.0), comes=80.0), query()], [idle, waiting])
    for id, cpu in (("S.1", 4), ("Q.1", 2)):
        one = found(seen, id)
        assert (one.in_rate, one.cpu) == (80, cpu)
        assert one.missing == ("in_rate",)
        assert one.stale is True
        assert not seen.fresh[id]
    plan, _ = StreamEconomics().decide(seen.snapshot)
    assert plan.starved == ()
    assert set(current_accuracy(seen.snapshot).values()) == set(plan.desired.values()) == {1.0}


def test_a_consumer_that_reported_before_the_rows_got_to_it_is_not_starved_either() -> None:
    behind = replace(view("Q", reading(0), age_s=4.0), came=0.0)
    seen = observed([source(), replace(query(), comes=50.0)], [view("S", reading(100)), behind])
    assert found(seen, "Q.1").in_rate == 100
    assert found(seen, "Q.1").missing == ("in_rate",)
    assert seen.fresh == {"S.1": True, "Q.1": False}


def test_rows_that_came_and_were_not_read_are_a_measured_0() -> None:
    stuck = replace(view("S", reading(0), age_s=1.0), came=90.0)
    seen = observed([replace(source(), comes=100.0), query()], [stuck, view("Q", reading(0))])
    assert found(seen, "S.1").in_rate == 0
    assert seen.fresh["S.1"]
    assert Freshness.of(found(seen, "S.1")).is_fresh


@pytest.mark.parametrize("external", [0.0, None])
def test_an_idle_source_reads_a_measured_0(external: float | None) -> None:
    idle = replace(view("S", reading(0)), came=0.0)
    seen = observed([source(rate=external), query()], [idle, view("Q", reading(0))])
    assert found(seen, "S.1").in_rate == found(seen, "Q.1").in_rate == 0
    assert seen.fresh == {"S.1": True, "Q.1": True}


def test_a_load_that_grows_is_measured_as_it_is() -> None:
    """Also what is read of a backlog, while little comes, is."""
    grown = replace(view("S", reading(25)), came=25.0)
    seen = observed([replace(source(), comes=100.0), query()], [grown, view("Q", reading(25))])
    assert found(seen, "S.1").in_rate == 25
    assert seen.fresh["S.1"]
    draining = replace(view("S", reading(500)), came=0.0)
    seen = observed([replace(source(), comes=100.0), query()], [draining, view("Q", reading(500))])
    assert found(seen, "S.1").in_rate == 500
    assert seen.fresh["S.1"]


def test_drops_at_both_ends_of_a_stream_are_told_together() -> None:
    counts = {"S": Count(10, 6, 4, 0), "S>Q": Count(6, 5, 1, 0)}
    seen = observed(
        [source(), query()], [view("S", reading()), view("Q", reading())], counts=counts, dropped_sending={"S>Q": 7}
    )
    assert seen.measured.dropped == {"S": 4, "S>Q": 8}
    assert seen.measured.counts == counts


def test_accuracy_is_the_share_kept_all_the_way() -> None:
    first = reading(kept={"topic-S": 50}, read={"topic-S": 100}, out=50, sent={"0": 40})
    last = reading(kept={"topic-S-Q": 30}, read={"topic-S-Q": 40})
    seen = observed([source(), query()], [view("S", first), view("Q", last)])
    assert seen.measured.accuracy["S"] == 0.5
    assert seen.measured.accuracy["Q"] == pytest.approx(0.5 * 0.8 * 0.75)


def test_without_rows_there_is_no_accuracy() -> None:
    assert observed([source(), query()], [view("S", None), view("Q", None)]).measured.accuracy == {"S": None, "Q": None}


rates = st.floats(0, 1e6)
readings = st.builds(
    lambda r, o, cpu, read, share: reading(
        r, cpu=cpu, out_rate=o, read={"topic-S": read}, kept={"topic-S": int(share * read)}, out=read, sent={"0": read}
    ),
    rates,
    rates,
    st.one_of(st.none(), st.floats(0, 6400)),
    st.integers(0, 10**6),
    st.floats(0, 1),
)
views = st.tuples(st.one_of(st.none(), readings), st.booleans(), st.floats(0, 100), st.one_of(st.none(), rates))


@given(st.lists(st.lists(views, min_size=1, max_size=3), min_size=3, max_size=3), st.one_of(st.none(), rates), rates)
def test_snapshots_are_valid_and_honest_whatever_was_measured(
    by_task: list[list[tuple[MeterReading | None, bool, float, float | None]]], external: float | None, between: float
) -> None:
    tasks = [
        replace(source("S", external, ("S>M", "S>Q")), comes=external or 0.0),
        TaskView("M", ("S",), None, None, {"S>M": "topic-S-M"}, ("M>Q",), None, between),
        query("Q", "M", "S"),
    ]
    made = [
        replace(view(task.id, one, current=current and one is not None, age_s=age_s, index=i + 1), came=came)
        for task, instances in zip(tasks, by_task, strict=True)
        for i, (one, current, age_s, came) in enumerate(instances)
    ]
    seen = observed(tasks, made)
    check_snapshot(seen.snapshot)
    assert len(seen.snapshot.instances) == len(made)
    for given_view, one in zip(made, seen.snapshot.instances, strict=True):
        assert one.id == given_view.id
        if given_view.reading is None:
            assert one.missing == ("in_rate", "cpu")
        else:
            missing = one.missing
            assert "in_rate" in missing or one.in_rate == given_view.reading.in_rate
            assert ("cpu" in missing) == (given_view.reading.cpu is None)
            old = not given_view.current or given_view.age_s > FRESH_S or "in_rate" in missing
            assert one.stale is old
        assert seen.fresh[one.id] == Freshness.of(one).is_fresh
    for accuracy in seen.measured.accuracy.values():
        assert accuracy is None or accuracy >= 0


def test_a_cpu_of_an_older_time_is_used_and_not_fresh() -> None:
    seen = observed([source(), query()], [view("S", reading()), view("Q", reading(cpu=40.0, cpu_held=True))])
    instance = found(seen, "Q.1")
    assert (instance.cpu, instance.stale) == (40.0, True)
    assert not seen.fresh["Q.1"]


def test_a_stream_carries_rows_of_the_size_that_its_readers_have_read() -> None:
    topic = "topic-S-Q"
    views = [
        view("S", reading(90)),
        view("Q", reading(60, read={topic: 300}, row_bytes={topic: 100.0})),
        view("Q", reading(20, read={topic: 100}, row_bytes={topic: 140.0}), index=2),
    ]
    (stream,) = observed([source(), query()], views).snapshot.streams
    assert stream.bytes_per_s == pytest.approx(90 * 110.0)
    (unknown,) = observed([source(), query()], [view("S", reading(90)), view("Q", None)]).snapshot.streams
    assert unknown.bytes_per_s is None
