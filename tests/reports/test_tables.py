from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from qod_magics.core.runtime import MISFITS, REPEATED, Event
from qod_magics.reports import tables
from tests.recordings.taxi_drives import records, taxi_drives

EDGES = ("TDSrc1", "TDSrc2", "TDSrc1>TDSnk1", "TDSrc1>TDSnk2", "TDSrc2>TDSnk1", "TDSrc2>TDSnk2")


def test_tasks_and_edges_begin_with_the_sources() -> None:
    lines = taxi_drives()
    for line in lines:
        line["snapshot"]["tasks"].reverse()
    assert tables.tasks(records(lines)) == ("TDSrc2", "TDSrc1", "TDSnk2", "TDSnk1")
    assert tables.edges(records(lines))[:2] == ("TDSrc2", "TDSrc1")
    assert set(tables.edges(records(lines))) == set(EDGES)


def test_cpu_of_tasks_and_other_processes_adds_up_to_that_of_the_task_manager() -> None:
    lines = taxi_drives()
    cpu = tables.cpu(records(lines))
    assert list(cpu.columns) == ["t", "task_manager", "task", "cpu"]
    total = cpu.groupby(["t", "task_manager"])["cpu"].sum()
    for t, line in zip(range(0, 380, 5), lines, strict=True):
        for manager in line["snapshot"]["task_managers"]:
            assert total[t, manager["id"]] == pytest.approx(manager["cpu"])
    others = cpu[cpu["task"] == tables.OTHER]["cpu"]
    assert others.between(1.9, 3.1).all()


def test_cpu_of_processes_is_never_negative() -> None:
    (line, *_) = taxi_drives()
    line["snapshot"]["task_managers"][0]["cpu"] = 1.0  # measured at another instant than its instances
    assert tables.cpu(records([line]))["cpu"].min() == 0.0


def test_a_task_manager_begins_when_it_joins_and_leaves_a_gap() -> None:
    lines = taxi_drives()[26:34]
    managers = lines[5]["snapshot"]["task_managers"]
    lines[5]["snapshot"]["task_managers"] = managers[:1]
    for instance in lines[5]["snapshot"]["instances"]:
        instance["task_manager"] = "tm1"
    mine = tables.capacity(records(lines)).query("task_manager == 'tm2'")
    assert list(mine["t"]) == [10, 15, 20, 25, 30, 35]
    assert mine["capacity"].isna().tolist() == [False, False, False, True, False, False]
    assert tables.cpu(records(lines)).query("task_manager == 'tm2' and t == 25")["cpu"].sum() >= 0


def test_accuracy_is_measured_planned_and_minimum() -> None:
    lines = taxi_drives()
    lines[3]["measured"]["accuracy"]["TDSnk1"] = None
    accuracy = tables.accuracy(records(lines))
    at = accuracy[(accuracy["t"] == 100) & (accuracy["query"] == "TDSnk2")].set_index("kind")["accuracy"]
    assert at.to_dict() == {
        "measured": lines[20]["measured"]["accuracy"]["TDSnk2"],
        "planned": lines[20]["plan"]["desired"]["TDSnk2"],
        "minimum": 0.6,
    }
    assert len(accuracy) == len(lines) * 6 - 1


def timed(p95: list[float | None], target: float | None) -> list[dict[str, Any]]:
    """Lines in which TDSnk1 has these latencies, and TDSnk2 none."""
    lines = taxi_drives()[: len(p95)]
    for line, value in zip(lines, p95, strict=True):
        line["measured"]["latency_s"] = {} if value is None else {"TDSnk1": value}
        (query,) = (task for task in line["snapshot"]["tasks"] if task["id"] == "TDSnk1")
        query |= {"latency_p50_s": 0.5, "oldest_s": 3.0} | ({} if target is None else {"max_latency_s": target})
    return lines


def test_latency_is_the_95th_percentile_and_its_target() -> None:
    latency = tables.latency(records(timed([1.0, None, 3.0], 2.0)))
    assert [(row[0], row[1], row[3]) for row in latency.itertuples(index=False, name=None)] == [
        (0.0, "TDSnk1", 1.0),
        (0.0, "TDSnk1", 2.0),
        (5.0, "TDSnk1", 2.0),
        (10.0, "TDSnk1", 3.0),
        (10.0, "TDSnk1", 2.0),
    ]
    assert tables.latency(records(timed([None], None))).empty


def test_latencies_are_medians_and_how_often_the_target_was_missed() -> None:
    found = tables.latencies(records(timed([1.0, None, 3.0, 2.0], 2.0)))
    assert list(found.itertuples(index=False, name=None)) == [("TDSnk1", 0.5, 2.0, 2.0, pytest.approx(1 / 3), 3.0)]
    (row,) = tables.latencies(records(timed([1.0, 2.0], None))).to_dict("records")
    assert (row["p95"], pd.isna(row["target"]), pd.isna(row["missed"])) == (1.5, True, True)
    assert tables.latencies(records(timed([None], 2.0))).empty


def test_throughput_reads_what_it_processes_and_drops() -> None:
    lines = taxi_drives()
    rates = tables.throughput(records(lines)).query("source == 'TDSrc1' and t == 100").set_index("kind")["rate"]
    now, before = (lines[i]["measured"]["counts"]["TDSrc1"] for i in (20, 19))
    assert rates["arriving"] == lines[20]["measured"]["input_rate"]["TDSrc1"]
    assert rates["read"] == pytest.approx(sum(now[k] - before[k] for k in ("processed", "dropped")) / 5)
    assert rates["processed"] == pytest.approx((now["processed"] - before["processed"]) / 5)


def test_throughput_knows_no_read_rate_without_counts_nor_from_a_repeated_line() -> None:
    lines = taxi_drives()[:4]
    del lines[1]["measured"]["counts"]
    lines.append({**lines[-1], "at": "2026-11-21T02:00:17.000Z", "repeated": True})
    rates = tables.throughput(records(lines)).query("kind == 'read' and source == 'TDSrc1'")
    assert list(rates["t"]) == [10, 15]
    assert rates["rate"].between(580, 620).all()  # the first over two periods


def test_a_source_that_is_declared_anew_has_no_read_rate_until_it_is_counted_again() -> None:
    lines = taxi_drives()[:5]
    for line in lines[3:]:
        before = line["measured"]["counts"]["TDSrc1"]
        line["measured"]["counts"]["TDSrc1"] = {name: rows // 1000 for name, rows in before.items()}
    rates = tables.throughput(records(lines)).query("kind == 'read' and source == 'TDSrc1'")
    assert list(rates["t"]) == [5, 10, 20]
    assert (rates["rate"] >= 0).all()


def test_lag_has_a_bound_where_the_input_rate_is_known() -> None:
    lines = taxi_drives()[:2]
    lines[1]["measured"]["input_rate"]["TDSrc1"] = None
    lag = tables.lag(records(lines)).query("edge == 'TDSrc1'")
    assert lag["bound"].iloc[0] == 10 * lines[0]["measured"]["input_rate"]["TDSrc1"]
    assert pd.isna(lag["bound"].iloc[1])


def test_dropped_rows_by_source_and_stream() -> None:
    lines = taxi_drives()
    last = tables.dropped(records(lines)).query("t == 375").set_index("edge")["rows"]
    assert last.to_dict() == lines[-1]["measured"]["dropped"]


def test_bands_cover_the_cycles_of_a_phase() -> None:
    bands = tables.phase_bands(records(taxi_drives()))
    assert list(bands["phase"]) == ["calm", "overload", "second-task-manager", "heavier", "calm-again"]
    assert list(bands["start"])[1:] == list(bands["end"])[:-1]
    assert (bands["start"].iloc[0], bands["end"].iloc[-1]) == (0, 375)
    assert bands["start"].iloc[1] == 55  # the line at 60 s tells of the seconds from 55 on


def test_events_that_last_are_named_once_until_they_come_back() -> None:
    lines = taxi_drives()[:12]
    for index in (2, 3, 4, 8):
        lines[index]["events"] = [{"kind": "starved", "task_manager": "tm1"}, {"kind": "warm-up", "instance": "A.1"}]
    events = tables.events(records(lines))
    assert events.to_dict("list") == {"t": [10, 40], "kind": ["starved"] * 2, "label": ["tm1 starved"] * 2}


@pytest.mark.parametrize(
    ("event", "label"),
    [
        ({"kind": "move", "instance": "A.1", "from": "tm1", "to": "tm2"}, "A.1 → tm2"),
        ({"kind": "task-manager-up", "task_manager": "tm2"}, "tm2 joins"),
        ({"kind": "task-manager-removed", "task_manager": "tm2"}, "tm2 leaves"),
        ({"kind": "task-manager-lost", "task_manager": "tm2"}, "tm2 lost"),
        ({"kind": "query-failed", "instance": "A.1"}, "A.1 failed"),
        ({"kind": "query-stalled", "instance": "A.1"}, "A.1 stalled"),
        ({"kind": "query-restarted", "query": "A"}, "A restarted"),
        ({"kind": "dial-fallback"}, "dial-fallback"),
        ({"kind": "scale", "task": "Snk", "from": 1, "to": 3, "took_s": 2.0}, "Snk → 3 instances"),
    ],
)
def test_labels_of_events(event: dict[str, Any], label: str) -> None:
    assert tables.event_label(Event(event.pop("kind"), event)) == label


def test_moves_and_books_are_tables() -> None:
    lines = taxi_drives()
    moves = tables.moves(records(lines))
    assert list(moves["instance"]) == ["TDSnk1.2", "TDSnk1.1"]
    assert set(moves["to"]) == {"tm2"}
    books = tables.books(records(lines)).set_index("edge")
    assert tuple(books.index) == EDGES
    assert (books["arrived"] == books[["processed", "dropped", "waiting", "unreported"]].sum(axis=1)).all()
    assert books.loc["TDSrc1"].to_dict() == {
        **lines[-1]["measured"]["counts"]["TDSrc1"],
        **dict.fromkeys((*MISFITS, *REPEATED), 0),
    }


def test_comparison_counts_from_the_start_of_the_overload() -> None:
    off = taxi_drives(controlled=False)
    frame = tables.comparison(records(taxi_drives()), records(off))
    assert frame.groupby("controller")["t"].agg(["min", "max"]).to_dict("list") == {"min": [0, 0], "max": [75, 75]}
    assert frame.query("controller == 'off'")["lag"].iloc[-1] == sum(off[-1]["measured"]["lag"].values())


def test_frames_without_observations_keep_their_columns() -> None:
    (line, *_) = taxi_drives()
    bare = [{**line, "measured": {}, "events": [], "plan": {}}]
    del bare[0]["phase"]
    for frame in (tables.lag, tables.dropped, tables.phase_bands, tables.events, tables.moves, tables.books):
        assert frame(records(bare)).empty
        assert len(frame(records(bare)).columns) >= 3
    assert set(tables.accuracy(records(bare))["kind"]) == {"minimum"}
