"""What is said of a result, and its JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from qod_magics.results.result import Accuracy, from_json, to_json
from tests.results.rows import PER_ZONE, per_zone, result

LABELS = {"w": "exact", "zone": "exact", "trips": "estimated, with an interval"}


def test_the_accuracy_in_words() -> None:
    assert str(Accuracy(0.6249, 0.6, 0.4)) == "accuracy: measured 62.5%, planned 60.0%, minimum 40.0%"
    assert str(Accuracy(minimum=1.0)) == "accuracy: minimum 100.0%"
    assert str(Accuracy()) == "accuracy: not known yet"


def test_columns_that_are_drawn_have_their_labels() -> None:
    found = result(PER_ZONE, ("w", "zone"), [], labels=LABELS, missing="groups of which no row is kept are missing")
    assert found.told(["trips"]) == "trips estimated, with an interval; groups of which no row is kept are missing"
    assert replace(found, missing=None).told(["w", "zone", "fares", "trips"]) == (
        "w, zone exact; trips estimated, with an interval"
    )
    assert found.told(["fares"]) is None
    assert found.told([]) is None


def test_it_comes_back_from_json_as_it_was() -> None:
    rows = [per_zone(0, 1, 5.0), per_zone(1, 2, 7.0, None)]
    for keys in (("w", "zone"), None):
        found = replace(result(PER_ZONE, keys, rows, labels=LABELS, missing="groups"), unread=3)
        again = from_json([json.loads(json.dumps(line)) for line in to_json(found, rows)])
        assert list(again.rows.values()) == rows
        assert replace(again, rows=found.rows) == found
