"""What a scrape has, and that its counters balance."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.plan import Move
from qod_magics.core.runtime import Count, Event, FeedRows
from qod_magics.core.snapshot import replace
from qod_magics.errors import LostError
from qod_magics.monitoring.metrics import METRICS, SessionCollector, Told
from qod_magics.monitoring.monitor import Monitor
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.queries.progress import FeedCount
from tests.controller.scripted import Bench, FixedPolicy, bench, chain, seen
from tests.monitoring.scraping import Samples, assert_balanced, one, scrape

ROWS = FeedRows("Src", "Src", "trips", Count(10, 5, 2, 2, 1, 3, 1, 0, 6, 7), {0: 2, 1: 0}, 4, 1)


def scraped(*script: Any, policy: Any = None, cycles: int = 1, rows: tuple[FeedRows, ...] = (ROWS,)) -> Samples:
    return watched(*script, policy=policy, cycles=cycles, rows=rows)[0]


def watched(
    *script: Any, policy: Any = None, cycles: int = 1, rows: tuple[FeedRows, ...] = (ROWS,)
) -> tuple[Samples, Monitor, Bench]:
    b = bench(*script, policy=policy or FixedPolicy())
    monitor = Monitor(clock=b.clock.monotonic)
    b.controller.subscribe(monitor.take)
    b.cycles(cycles)
    return scrape(SessionCollector(monitor, lambda: Told("abc", "0.1", "fixed", rows))), monitor, b


def test_names_are_unique_and_in_base_units() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("qod_") for name in names)
    assert all(metric.help.endswith(".") for metric in METRICS)


def test_rows_are_told_by_stream() -> None:
    found = scraped()
    feed = {"stream": "Src", "task": "Src", "topic": "trips"}
    assert one(found, "qod_rows_processed_total", **feed) == 5
    assert one(found, "qod_rows_dropped_sending_total", **feed) == 4
    assert one(found, "qod_rows_deleted_total", **feed) == 1
    assert one(found, "qod_rows_read_again_total", **feed) == 6
    assert one(found, "qod_rows_sent_again_total", **feed) == 7
    assert one(found, "qod_rows_malformed_total", **feed, kind="malformed") == 3
    assert one(found, "qod_rows_malformed_total", **feed, kind="tombstones") == 1
    assert one(found, "qod_consumer_lag_rows", **feed, partition="0") == 2
    assert_balanced(found)


def test_rows_that_break_rules_are_told_by_rule() -> None:
    told = Told("abc", "0.1", "fixed", (), (("trips", "fare > 0", "drop", 3),))
    found = scrape(SessionCollector(Monitor(), lambda: told))
    assert one(found, "qod_rows_breaking_rules_total", stream="trips", rule="fare > 0", action="drop") == 3


@st.composite
def accounts(draw: st.DrawFn) -> tuple[Account, dict[int, int]]:
    """An account after some batches: read again, with lost reports, of recreated topics, with unknown counts."""
    partitions = range(draw(st.integers(1, 3)))
    account = Account("t", {p: draw(st.integers(0, 5)) for p in partitions})
    offsets = st.integers(0, 30)
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.none() | st.fixed_dictionaries(dict.fromkeys(partitions, offsets)))
        end = {p: draw(offsets) for p in partitions}
        read = draw(st.none() | st.integers(0, 60))
        kept = None if read is None else draw(st.integers(0, read))
        account.take(FeedCount("t", start, end, read, kept))
    return account, {p: draw(offsets) for p in partitions}


@given(accounts())
def test_the_counters_of_any_account_balance(given: tuple[Account, dict[int, int]]) -> None:
    account, ends = given
    rows = FeedRows("q", "q", "t", account.count(ends), account.waiting(ends), 0, account.deleted)
    found = scraped(rows=(rows,))
    feed = {"stream": "q", "task": "q", "topic": "t"}
    parts = ("processed_total", "dropped_total", "waiting", "unreported")
    assert one(found, "qod_rows_arrived", **feed) == sum(one(found, f"qod_rows_{part}", **feed) for part in parts)
    lags = found["qod_consumer_lag_rows"].values()
    assert sum(lags) == one(found, "qod_rows_waiting", **feed)


def test_a_query_is_told_with_plan_measurement_and_minimum() -> None:
    snapshot = chain()
    source, sink = snapshot.tasks
    sink = replace(sink, latency_p50_s=0.5, latency_p95_s=2.0, max_latency_s=3.0, oldest_s=4.0)
    seen_ = seen(replace(snapshot, tasks=(source, sink)))
    measured = replace(seen_.measured, accuracy={"Src": 1.0, "Snk": 0.6, "gone": 0.1}, late={"Snk": 7})
    found = scraped(replace(seen_, measured=measured), policy=FixedPolicy(0.7))
    assert one(found, "qod_accuracy_planned_ratio", task="Snk") == 0.7
    assert found["qod_accuracy_measured_ratio"] == {(("task", "Src"),): 1.0, (("task", "Snk"),): 0.6}
    assert found["qod_accuracy_minimum_ratio"] == {(("task", "Snk"),): 0.4}
    assert one(found, "qod_latency_seconds", task="Snk", percentile="95") == 2.0
    assert one(found, "qod_latency_target_seconds", task="Snk") == 3.0
    assert one(found, "qod_oldest_row_seconds", task="Snk") == 4.0
    assert one(found, "qod_rows_late_total", task="Snk") == 7
    assert one(found, "qod_rows_late_total", task="Src") == 0


def test_task_managers_are_told_in_cores() -> None:
    found = scraped(policy=FixedPolicy(starved=("tm1",)))
    assert one(found, "qod_task_manager_cpu_cores", task_manager="tm1") == 0.5
    assert one(found, "qod_task_manager_starved", task_manager="tm1") == 1
    assert one(found, "qod_task_manager_starved", task_manager="tm2") == 0
    assert one(found, "qod_task_cpu_cores", task="Snk") == 0.4
    assert one(found, "qod_alarms_open", kind="starved") == 1
    assert one(found, "qod_alarms_open", kind="given-up") == 0


def test_cycles_decisions_actions_and_events_are_counted_by_kind() -> None:
    moved = Event("move", {"instance": "Snk.1", "from": "tm1", "to": "tm2", "took_s": 1.0})
    policy = FixedPolicy(0.5, actions=(Move("Snk.1", "tm2", "why"), Move("no.1", "tm2", "why")))
    found, monitor, b = watched(seen(), seen(), seen(None, moved), LostError("gone"), seen(), policy=policy, cycles=4)
    assert one(found, "qod_actions_total", kind="move", outcome="decided") == 1, "once while it stands"
    assert one(found, "qod_actions_total", kind="move", outcome="done") == 1
    assert one(found, "qod_actions_total", kind="move", outcome="refused") == 1
    assert one(found, "qod_decisions_total", kind="shedding") == 2
    assert one(found, "qod_events_total", kind="observe-failed") == 1
    assert one(found, "qod_cycles_total", outcome="skipped") == 1
    assert one(found, "qod_cycles_total", outcome="applied") == 3
    b.controller.pause()
    b.cycles(1)
    assert monitor.tally.cycles["recommended"] == 1


def test_the_time_of_the_last_decision_stays_where_cycles_are_skipped() -> None:
    found = scraped(seen(), LostError("gone"), cycles=5)
    assert found["qod_controller_last_decision_timestamp_seconds"] == {(): 1767225600.0}
    assert found["qod_controller_period_seconds"] == {(): 5.0}


def test_a_silent_controller_is_found_by_the_scrape() -> None:
    _, monitor, b = watched(seen(), LostError("gone"), cycles=9)
    found = scrape(SessionCollector(monitor, lambda: Told("abc", "0.1", "fixed", ())))
    assert one(found, "qod_alarms_open", kind="controller-silent") == 1
    assert b.clock.monotonic() == 45.0


def test_before_the_first_cycle_there_is_a_scrape() -> None:
    found = scraped(cycles=0, rows=())
    assert one(found, "qod_session_info", session="abc", version="0.1", policy="fixed") == 1
    assert "qod_rows_arrived" not in found
