"""Results: the newest row of each key, and their JSON form."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.snapshot import replace
from qod_magics.results.result import Accuracy, Newest, NewestBatch, from_json, to_json
from tests.results.rows import PER_ZONE, per_zone, result
from tests.texts import tells

WINDOWS = [{"start": "a", "end": "b"}, {"start": "b", "end": "c"}]
ROW = st.fixed_dictionaries(
    {"n": st.integers(0, 1000)},
    optional={
        "w": st.sampled_from(WINDOWS),
        "zone": st.integers(0, 3),
    },
)
ROWS = st.lists(ROW, max_size=40)


def last_of_each(rows: list[dict[str, Any]], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """Each row after which none has the same key, in their order."""
    of = [tuple(str(row.get(key)) for key in keys) for row in rows]
    return [row for position, row in enumerate(rows) if of[position] not in of[position + 1 :]]


@given(rows=ROWS, keys=st.sampled_from([("w", "zone"), ("zone",), ()]), cut=st.integers(0, 40))
def test_of_each_key_the_row_written_last_stays(rows: list[dict[str, Any]], keys: tuple[str, ...], cut: int) -> None:
    newest = Newest(keys)
    newest.add(rows[:cut])
    newest.add(rows[cut:])
    assert list(newest.rows.values()) == last_of_each(rows, keys)
    assert newest.forgotten == 0


@given(rows=ROWS, most=st.integers(1, 10))
def test_rows_that_stand_for_themselves_stay_until_there_are_too_many(rows: list[dict[str, Any]], most: int) -> None:
    newest = Newest(None, most)
    newest.add(rows)
    assert list(newest.rows.values()) == rows[-most:]
    assert newest.forgotten == max(len(rows) - most, 0)


@given(rows=ROWS, most=st.integers(1, 3))
def test_the_keys_written_longest_ago_are_forgotten_first(rows: list[dict[str, Any]], most: int) -> None:
    newest = Newest(("zone",), most)
    newest.add(rows)
    assert list(newest.rows.values()) == last_of_each(rows, ("zone",))[-most:]


def test_a_snapshot_is_the_same_until_there_are_other_rows() -> None:
    newest = Newest(("zone",))
    newest.add([{"zone": 1, "n": 1}])
    before = newest.snapshot()
    newest.add([])
    assert newest.snapshot() is before
    newest.add([{"zone": 1, "n": 2}])
    assert newest.snapshot() is not before
    assert list(before.values()) == [{"zone": 1, "n": 1}]
    assert dict(newest.snapshot()) == newest.rows


LABELS = {"w": "exact", "zone": "exact", "trips": "estimated, with an interval"}


def test_the_accuracy_in_words() -> None:
    assert str(Accuracy(0.6249, 0.6, 0.4)) == "accuracy: measured 62.5%, planned 60.0%, minimum 40.0%"
    assert str(Accuracy(minimum=1.0)) == "accuracy: minimum 100.0%"
    assert str(Accuracy()).startswith("accuracy: ")


def test_columns_that_are_drawn_have_their_labels() -> None:
    found = result(PER_ZONE, ("w", "zone"), [], labels=LABELS, missing="groups of which no row is kept are missing")
    assert tells(found.effects_of_shedding(["trips"]), "trips estimated", found.missing)
    whole = replace(found, missing=None)
    assert tells(whole.effects_of_shedding(["w", "zone", "fares", "trips"]), "zone exact", "trips estimated")
    assert found.effects_of_shedding(["fares"]) is None
    assert found.effects_of_shedding([]) is None


def test_it_comes_back_from_json_as_it_was() -> None:
    rows = [per_zone(0, 1, 5.0), per_zone(1, 2, 7.0, None)]
    for keys in (("w", "zone"), None):
        found = replace(result(PER_ZONE, keys, rows, labels=LABELS, missing="groups"), unread=3, incomplete=("late",))
        again = from_json([json.loads(json.dumps(line)) for line in to_json(found, rows)])
        assert list(again.rows.values()) == rows
        assert replace(again, rows=found.rows) == found


def test_of_a_whole_result_the_rows_of_the_newest_batch_stay_in_their_order() -> None:
    newest = NewestBatch(("zone",))
    newest.add([((10, "a"), 7, {"zone": 2}), ((10, "a"), 5, {"zone": 1}), ((10, "a"), 9, {"zone": 3})])
    assert list(newest.snapshot().values()) == [{"zone": 1}, {"zone": 2}, {"zone": 3}]
    before = newest.snapshot()
    newest.add([((10, "b"), 2, {"zone": 1}), ((10, "b"), 3, {"zone": 2}), ((10, "b"), 3, {"zone": 2})])  # run again
    assert list(newest.snapshot().values()) == [{"zone": 1}, {"zone": 2}]
    newest.add([((20, "b"), 0, {"zone": 9})])
    assert list(newest.snapshot().values()) == [{"zone": 9}]
    newest.add([((15, "b"), 0, {"zone": 8})])  # a clock was set back
    assert list(newest.rows.values()) == [{"zone": 8}]
    assert len(before) == 3
    assert newest.snapshot() is newest.snapshot()
    newest.empty(15)
    assert len(newest.rows) == 1
    newest.empty(15.1)
    assert len(newest.rows) == len(newest.snapshot()) == 0
    unkeyed = NewestBatch(None)
    unkeyed.add([((10, "a"), 1, {"n": 1}), ((10, "a"), 1, {"n": 1})])
    assert len(unkeyed.rows) == 2


def test_a_file_from_before_results_could_be_incomplete_is_read() -> None:
    rows = [per_zone(0, 1, 5.0)]
    head, *lines = to_json(result(PER_ZONE, None, rows), rows)
    del head["incomplete"]
    assert from_json([head, *lines]).incomplete == ()
