"""Queries over slices: what tells two parameters apart, which settings hold, and what is forgotten."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.results.slices import File, sliced
from qod_magics.session.copies import Holder
from qod_magics.session.parts import kind
from qod_magics.session.slices import Slices


def test_parameters_of_other_types_are_of_other_kinds() -> None:
    values = [1, 2**31, 0.5, True, "1", b"1", None, Decimal("1.5"), Decimal("1.25"), [1], [0.5], {"a": 1}]
    values += [date(2026, 1, 1), datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)]
    assert all(kind(a) != kind(b) for a, b in combinations(values, 2))


@pytest.mark.parametrize(
    ("a", "b"), [(1, -(2**31)), (2**31 - 1, 0), (2**31, 2**62), (0.5, math.nan), ("a", "b"), (False, True)]
)
def test_parameters_of_one_type_are_of_one_kind(a: object, b: object) -> None:
    assert kind(a) == kind(b)


class Conf(dict[str, str]):
    """The settings of a session."""

    set = dict.__setitem__
    unset = dict.__delitem__


def test_a_session_of_a_task_manager_has_the_settings_of_the_last_query_alone() -> None:
    conf = Conf({"zone": "UTC", "its.own": "1"})
    spark = SimpleNamespace(conf=conf, sql=lambda text: SimpleNamespace(collect=list))
    manager: Any = SimpleNamespace(id="tm1", for_batch=lambda: spark)
    holder = Holder(manager)
    before = dict(conf)
    holder.adopt({"zone": "Europe/Berlin", "legacy": "true"})
    assert conf == {**before, "zone": "Europe/Berlin", "legacy": "true"}
    holder.adopt({"zone": "UTC"})
    assert conf == before


def test_ranges_of_slices_that_are_no_more_are_forgotten() -> None:
    session: Any = SimpleNamespace()
    slices = Slices(session)
    ranges: Mapping[str, Any] = slices._state.ranges

    def of(*names: str, columns: str = "id BIGINT", query: str = "totals") -> list[str]:
        found = sliced(query, columns, [File(name, 1, 0) for name in names], 60.0, 1000.0)
        slices._forget_stale(query, found)
        slices._state.ranges.setdefault(query, {}).update({each.id: {} for each in found})
        return [each.id for each in found]

    other = of("a", query="other")
    for names in ("a", "ab", "abc"):
        assert of(*names) == list(ranges["totals"])
    assert of("a", "b", "c", columns="id STRING") == list(ranges["totals"])
    assert list(ranges["other"]) == other
