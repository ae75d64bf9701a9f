"""Reports of both clients, of sources of all kinds, and of idle triggers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.queries.progress import FeedCount, batch_of


def report(**changes: Any) -> dict[str, Any]:
    return {
        "id": "q",
        "runId": "r1",
        "batchId": 4,
        "timestamp": "2026-03-01T10:00:00.500Z",
        "batchDuration": 2000,
        "durationMs": {"triggerExecution": 2000, "addBatch": 1750},
        "sources": [
            {
                "description": "KafkaV2[Assign[trips-0, trips-1]]",
                "startOffset": {"trips": {"0": 10, "1": 20}},
                "endOffset": {"trips": {"0": 15, "1": 27}},
                "numInputRows": 12,
            }
        ],
        "observedMetrics": {
            "shed.trips": {"rows": 12, "kept": 9},
            "out": {"rows": 7, "sent_0": 5, "sent_1": 2},
        },
        **changes,
    }


def connect_row(**values: Any) -> dict[str, Any]:
    """An observed row as a Connect client has it."""
    return {"values": list(values.values()), "schema": {"fields": [{"name": name} for name in values]}}


def test_a_batch() -> None:
    batch = batch_of(report())
    assert batch is not None
    assert (batch.run_id, batch.batch_id) == ("r1", 4)
    assert batch.end - batch.start == 2.0
    assert batch.planning_s == 0.25
    (feed,) = batch.feeds
    assert (feed.topic, feed.start, feed.end) == ("trips", {0: 10, 1: 20}, {0: 15, 1: 27})
    assert (feed.read, feed.kept, batch.rows) == (12, 9, 9)
    assert (batch.out, batch.sent) == (7, {"0": 5, "1": 2})


@pytest.mark.parametrize(("shed", "read"), [({"rows": 0, "kept": 0}, 0), ({"rows": 7, "kept": 6}, 7), ({}, None)])
def test_a_topic_made_anew_meanwhile_ends_before_the_start(shed: dict[str, Any], read: int | None) -> None:
    """Spark goes on at its end, having read none of that partition."""
    (source,) = report()["sources"]
    source["endOffset"] = {"trips": {"0": 4, "1": 27}} if read else {"trips": {"0": 4, "1": 20}}
    batch = batch_of(report(sources=[source], observedMetrics={"shed.trips": shed} if shed else {}))
    assert batch is not None
    (feed,) = batch.feeds
    assert (feed.read, feed.kept) == (read, shed.get("kept"))


@pytest.mark.parametrize("connect", [True, False])
def test_times_of_records_are_in_seconds(connect: bool) -> None:
    shed: dict[str, Any] = {"rows": 12, "kept": 9, "ages": [30, 45], "times": None}
    row = connect_row(**shed) if connect else shed
    (feed,) = batch_of(report(observedMetrics={"shed.trips": row})).feeds  # type: ignore[union-attr]
    assert (feed.ages, feed.times) == ((0.03, 0.045), ())
    (without,) = batch_of(report()).feeds  # type: ignore[union-attr]
    assert (without.ages, without.times) == ((), ())


def test_rows_of_new_partitions_and_of_several_topics_are_not_taken_for_counted_twice() -> None:
    source = report()["sources"][0]
    grown = {**source, "startOffset": {"trips": {"0": 10}}}
    assert batch_of(report(sources=[grown])).rows == 9  # type: ignore[union-attr]
    two = {**source, "startOffset": {"a": {"0": 5}, "b": {"0": 0}}, "endOffset": {"a": {"0": 5}, "b": {"0": 12}}}
    observed = {"shed.0": {"rows": 12, "kept": 9}, "out": {"rows": 7}}
    batch = batch_of(report(sources=[two], observedMetrics=observed))
    assert batch is not None
    assert (batch.feeds[0].topic, batch.rows, batch.out) == ("", 9, 7)


def test_the_eviction_of_all_state_operators_counts() -> None:
    operators = [{"allRemovalsTimeMs": 250}, {"allRemovalsTimeMs": 500}, {"operatorName": "another"}]
    assert batch_of(report(stateOperators=operators)).eviction_s == 0.75  # type: ignore[union-attr]
    assert batch_of(report()).eviction_s == 0.0  # type: ignore[union-attr]


def test_both_clients_say_the_same() -> None:
    observed = {
        "shed.trips": connect_row(rows=12, kept=9),
        "out": connect_row(rows=7, sent_0=5, sent_1=2),
    }
    assert batch_of(report(observedMetrics=observed)) == batch_of(report())


def test_offsets_may_be_text() -> None:
    source = report()["sources"][0]
    text = {**source, "startOffset": json.dumps(source["startOffset"]), "endOffset": json.dumps(source["endOffset"])}
    assert batch_of(report(sources=[text])) == batch_of(report())


def test_the_first_batch_of_all_has_no_start() -> None:
    source = {**report()["sources"][0], "startOffset": None}
    batch = batch_of(report(sources=[source]))
    assert batch is not None
    assert batch.feeds[0].start is None


def test_an_idle_trigger_is_no_batch() -> None:
    source = {**report()["sources"][0], "endOffset": {"trips": {"0": 10, "1": 20}}}
    assert batch_of(report(sources=[source], observedMetrics={})) is None


@pytest.mark.parametrize("offset", [3, "3", {"logOffset": 7}, None])
def test_an_idle_trigger_of_a_source_of_another_kind_is_no_batch(offset: Any) -> None:
    """It has the number of the batch that comes next, whose report would be taken for known."""
    source = {"description": "RateStreamV2", "startOffset": offset, "endOffset": offset, "numInputRows": 0}
    assert batch_of(report(sources=[source], observedMetrics={})) is None
    came = {**source, "endOffset": 4 if offset is None else 8}
    assert batch_of(report(sources=[came], observedMetrics={})) is not None


def test_a_batch_without_counts_is_one_whose_rows_are_not_known() -> None:
    batch = batch_of(report(observedMetrics={}))
    assert batch is not None
    assert (batch.feeds[0].read, batch.feeds[0].kept) == (None, None)
    assert batch.rows == 0


def test_no_rows_and_not_counted_are_two_things() -> None:
    batch = batch_of(report(observedMetrics={"shed.trips": {"rows": 0, "kept": 0}}))
    assert batch is not None
    assert (batch.feeds[0].read, batch.feeds[0].kept) == (0, 0)


def test_a_batch_that_was_evaluated_twice_is_told_once() -> None:
    twice = {"shed.trips": {"rows": 24, "kept": 18}, "out": {"rows": 14, "sent_0": 10, "sent_1": 4}}
    batch, again = batch_of(report()), batch_of(report(observedMetrics=twice))
    assert again == batch


@pytest.mark.parametrize(("counted", "late"), [(6, 3), (7, 3)])
def test_late_rows_of_a_batch_that_was_evaluated_twice_are_no_more_than_came(counted: int, late: int) -> None:
    twice = {"shed.trips": {"rows": 24, "kept": 18}, "out": {"rows": 14, "sent_0": 10, "sent_1": 4}}
    operators = [{"operatorName": "stateStoreSave", "numRowsDroppedByWatermark": counted}]
    batch = batch_of(report(observedMetrics=twice, stateOperators=operators))
    assert batch is not None
    assert batch.late == late


def test_a_feed_that_is_read_twice_is_told_once() -> None:
    (source,) = report()["sources"]
    assert batch_of(report(sources=[source, source])) == batch_of(report())


def test_a_source_of_another_kind_is_counted_by_its_position() -> None:
    rate = {"description": "RateStreamV2", "startOffset": 3, "endOffset": 4, "numInputRows": 6}
    batch = batch_of(report(sources=[rate], observedMetrics={"shed.0": {"rows": 6, "kept": 5}}))
    assert batch is not None
    (feed,) = batch.feeds
    assert (feed.topic, feed.end, feed.read, feed.kept) == ("", {}, 6, 5)


def source_of(topic: str, start: int, end: int) -> dict[str, Any]:
    return {"startOffset": {topic: {"0": start}}, "endOffset": {topic: {"0": end}}, "numInputRows": end - start}


RATE = {"description": "RateStreamV2", "startOffset": 3, "endOffset": 4, "numInputRows": 6}


def feeds(sources: list[dict[str, Any]], **observed: dict[str, int]) -> list[tuple[str, int | None, int | None]]:
    batch = batch_of(report(sources=sources, observedMetrics={"out": {"rows": 7}, **observed}))
    assert batch is not None
    return [(feed.topic, feed.read, feed.kept) for feed in batch.feeds]


def test_topics_of_a_recipe_are_told_apart_by_their_names() -> None:
    """It has read zones first, and joined them to trips."""
    counts = {"shed.zones": {"rows": 3, "kept": 3}, "shed.trips": {"rows": 100, "kept": 40}}
    sources = [source_of("trips", 0, 100), source_of("zones", 0, 3)]
    assert feeds(sources, **counts) == [("trips", 100, 40), ("zones", 3, 3)]
    counts["shed.0"] = {"rows": 6, "kept": 5}
    assert feeds([RATE, *sources], **counts) == [("", 6, 5), ("trips", 100, 40), ("zones", 3, 3)]


def test_of_several_other_sources_the_sum_is_known() -> None:
    """It is not scaled: which of them may have been read twice is not known."""
    counts = {"shed.0": {"rows": 3, "kept": 3}, "shed.1": {"rows": 100, "kept": 40}}
    assert feeds([RATE, RATE], **counts) == [("", 103, 43)]
    assert feeds([source_of("trips", 0, 100), RATE], **counts) == [("", 103, 43)]
    assert feeds([source_of("trips", 0, 9), source_of("zones", 0, 3)], **counts) == [("", 103, 43)]


def test_the_only_other_source_has_all_other_counts() -> None:
    """Also where the recipe reads another one of which it makes nothing, or this one twice."""
    assert feeds([RATE], **{"shed.1": {"rows": 6, "kept": 5}}) == [("", 6, 5)]
    twice = {"shed.0": {"rows": 100, "kept": 40}, "shed.1": {"rows": 100, "kept": 40}}
    assert feeds([source_of("7", 0, 100), source_of("7", 0, 100)], **twice) == [("7", 100, 40)]


def test_a_topic_that_a_recipe_reads_again_is_told_once() -> None:
    counts = {"shed.trips": {"rows": 100, "kept": 40}, "again.1.trips": {"rows": 100, "kept": 40}}
    trips = source_of("trips", 0, 100)
    assert feeds([trips, RATE, trips], **counts, **{"shed.2": {"rows": 6, "kept": 5}}) == [
        ("trips", 100, 40),
        ("", 6, 5),
    ]
    del counts["shed.trips"]  # the recipe makes nothing of its first read
    assert feeds([trips], **counts) == [("trips", 100, 40)]


def test_feeds_without_counts_keep_their_offsets() -> None:
    sources = [source_of("trips", 0, 100), source_of("zones", 0, 3)]
    assert feeds(sources) == [("trips", None, None), ("zones", None, None)]
    assert feeds(sources, **{"shed.zones": {"rows": 3, "kept": 3}}) == [("trips", None, None), ("zones", 3, 3)]


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.dictionaries(st.text(), st.integers())))
def test_odd_offsets_are_those_of_another_kind_of_source(offset: Any) -> None:
    source = {"startOffset": offset, "endOffset": offset}
    batch = batch_of(report(sources=[source]))
    assert batch is not None
    assert batch.feeds[0].end == {}


def test_malformed_values_are_those_of_all_schemas_of_a_topic() -> None:
    metrics = {
        "shed.trips": {"rows": 12, "kept": 9},
        "malformed.0.trips": {"rows": 2, "sample": "{bad"},
        "malformed.1.trips": {"rows": 1, "sample": None},
        "malformed.2.other.trips": {"rows": 7, "sample": "of another topic"},
        "out": {"rows": 7},
    }
    batch = batch_of(report(observedMetrics=metrics))
    assert batch is not None
    (feed,) = batch.feeds
    assert (feed.kept, feed.malformed, feed.sample) == (9, 3, "{bad")


def test_a_batch_without_malformed_values_has_none() -> None:
    batch = batch_of(report(observedMetrics={"shed.trips": {"rows": 12, "kept": 9}, "malformed.0.trips": {"rows": 0}}))
    assert batch is not None
    assert (batch.feeds[0].malformed, batch.feeds[0].sample) == (0, None)


def test_rows_that_are_no_rows_of_the_schema_are_counted_by_kind() -> None:
    metrics = {
        "shed.trips": {"rows": 12, "kept": 12},
        "malformed.0.trips": {
            **{"rows": 2, "sample": "{bad", "tombstones": 3, "columnless": 4},
            **{"implausible": 1, "late_time": "at=1764201600000000000"},
        },
    }
    batch = batch_of(report(observedMetrics=metrics))
    assert batch is not None
    (feed,) = batch.feeds
    assert (feed.malformed, feed.tombstones, feed.columnless, feed.implausible) == (2, 3, 4, 1)
    assert feed.late_time == "at=1764201600000000000"


@pytest.mark.parametrize(
    ("operators", "late", "groups"),
    [
        ([], 0, False),
        ([{"operatorName": "stateStoreSave", "numRowsDroppedByWatermark": 0}], 0, False),
        ([{"operatorName": "stateStoreSave", "numRowsDroppedByWatermark": 3}], 3, True),
        ([{"operatorName": "sessionWindowStateStoreSaveExec", "numRowsDroppedByWatermark": 3}], 3, True),
        ([{"operatorName": "dedupe", "numRowsDroppedByWatermark": 3}], 3, False),
        (
            [
                {"operatorName": "symmetricHashJoin", "numRowsDroppedByWatermark": 2},
                {"operatorName": "stateStoreSave", "numRowsDroppedByWatermark": 1},
            ],
            3,
            True,
        ),
    ],
)
def test_late_rows_are_those_of_all_operators(operators: list[dict[str, Any]], late: int, groups: bool) -> None:
    batch = batch_of(report(stateOperators=operators, eventTime={"watermark": "2026-01-01T12:04:00.000Z"}))
    assert batch is not None
    assert (batch.late, batch.late_groups, batch.watermark) == (late, groups, "2026-01-01T12:04:00.000Z")


@pytest.mark.parametrize("twice", [1, 2])
def test_rows_of_files_are_told_by_their_names(twice: int) -> None:
    source = {"startOffset": {"logOffset": 3}, "endOffset": {"logOffset": 5}, "numInputRows": 60 * twice}
    shed = {
        "rows": 60 * twice,
        "kept": 20 * twice,
        "first": "000000000000100-000000000000120.json",
        "last": "000000000000120-000000000000160.json",
    }
    malformed = {"rows": 3 * twice, "sample": "{", "tombstones": 0}
    name = "json:/data/in.d"
    batch = batch_of(
        report(
            sources=[source],
            observedMetrics={f"shed.{name}": shed, f"malformed.0.{name}": malformed, "out": {"rows": 9 * twice}},
        )
    )
    assert batch is not None
    assert batch.feeds == (FeedCount(name, {0: 100}, {0: 160}, 60, 20, malformed=3, sample="{"),)
    assert (batch.rows, batch.out) == (20, 9)


def test_a_batch_without_rows_of_files_is_none_of_theirs() -> None:
    source = {"startOffset": {"logOffset": 3}, "endOffset": {"logOffset": 3}}
    shed = {"rows": 0, "kept": 0, "first": None, "last": None}
    batch = batch_of(report(sources=[source], observedMetrics={"shed.json:/data": shed}))
    assert batch is not None
    assert [(feed.topic, feed.end) for feed in batch.feeds] == [("", {})]


def test_files_may_be_read_beside_a_topic() -> None:
    files = {"startOffset": {"logOffset": 3}, "endOffset": {"logOffset": 5}}
    topic = {"startOffset": {"trips": {"0": 1}}, "endOffset": {"trips": {"0": 4}}}
    name = "000000000000000-000000000000005.csv"
    observed = {
        "shed.csv:/data": {"rows": 5, "kept": 5, "first": name, "last": name},
        "shed.trips": {"rows": 3, "kept": 1},
    }
    batch = batch_of(report(sources=[files, topic], observedMetrics=observed))
    assert batch is not None
    assert {(feed.topic, feed.read, feed.kept) for feed in batch.feeds} == {("csv:/data", 5, 5), ("trips", 3, 1)}


def test_rows_that_break_rules_are_counted_by_stream() -> None:
    metrics = {**report()["observedMetrics"], "expect.a": {"rule_0": 3, "rule_1": 0}, "expect.b": connect_row(rule_0=4)}
    batch = batch_of(report(observedMetrics=metrics))
    assert batch is not None
    assert batch.broken == {"a": [3, 0], "b": [4]}
    assert len(batch.feeds) == 1


def test_a_batch_that_counts_rows_twice_counts_those_that_break_rules_once() -> None:
    metrics = {"shed.trips": {"rows": 24, "kept": 24}, "out": {"rows": 24}, "expect.a": {"rule_0": 6}}
    batch = batch_of(report(observedMetrics=metrics))
    assert batch is not None
    assert batch.broken == {"a": [3]}


def test_bytes_of_the_values_of_a_stream_are_those_of_one_pass() -> None:
    batch = batch_of(report(observedMetrics={"shed.trips": {"rows": 24, "kept": 18, "bytes": 2400}}))
    assert batch is not None
    assert (batch.feeds[0].read, batch.feeds[0].size) == (12, 1200), "the recipe reads its input twice"
    (source,) = batch_of(report()).feeds  # type: ignore[union-attr]
    assert source.size is None
