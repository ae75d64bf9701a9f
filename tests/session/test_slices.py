"""Queries over slices: what tells two parameters apart, which settings hold, and what is forgotten."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from qod_magics.core.engines import Observation, Round
from qod_magics.core.policy import SliceRules
from qod_magics.policies.getafix.policy import Router
from qod_magics.policies.stream_economics.policy import reactive
from qod_magics.results.slices import File, Slice, sliced
from qod_magics.session.copies import Holder
from qod_magics.session.parts import kind
from qod_magics.session.slices import Slices, _Seen


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


class Keeper:
    """A task manager's copies, in the place of a `Holder`."""

    def __init__(self, name: str, *copies: str) -> None:
        self.manager = SimpleNamespace(id=name, capacity=1.0, alive=lambda: True)
        self.copies, self.bytes = set(copies), dict.fromkeys(copies, 10)

    def look(self) -> frozenset[str]:
        return frozenset(self.copies)

    def memory(self) -> None:
        return None

    def load(self, slices: Sequence[Slice], schema: object) -> None:
        self.copies |= {each.id for each in slices}

    def drop(self, id: str) -> None:
        self.copies.discard(id)


class Moves:
    """A replication policy that moves each copy from tm1 to tm2."""

    name = "moves"

    def decide(self, seen: Observation, state: None) -> tuple[Round, None]:
        there = sorted(seen.held["tm1"])
        loads, drops = tuple(("tm2", id) for id in there), tuple(("tm1", id) for id in there)
        return Round({}, loads, drops), None


def test_a_copy_moves_in_a_round_once_the_rules_admit_further_copies() -> None:
    (only,) = sliced("totals", "id BIGINT", [File("a", 1, 0)], 60.0, 1000.0)
    keepers: Any = {"tm1": Keeper("tm1", only.id), "tm2": Keeper("tm2")}
    policy: Any = reactive()
    policy.slices = SliceRules(Moves(), Router, 60.0, 300.0, may_load=lambda snapshot, plan: plan == "calm")
    answering = SimpleNamespace(answering=lambda: [each.manager for each in keepers.values()])
    session: Any = SimpleNamespace(
        controller=SimpleNamespace(policy=policy, paused=False), runtime=SimpleNamespace(cluster=answering)
    )
    slices = Slices(session)
    slices._state.holders.update(keepers)
    slices._state.seen[only.id] = _Seen(only, StructType(), time.monotonic())
    for plan, homes in (("busy", ["tm1"]), ("calm", ["tm2"])):
        slices.cycle(SimpleNamespace(snapshot="seen", plan=plan))  # type: ignore[arg-type]
        assert slices._round is not None
        slices._round.result(10.0)
        assert [name for name, each in keepers.items() if only.id in each.copies] == homes
        assert slices.keeps is (plan == "calm"), "queries make copies, too"


def test_slices_with_copies_are_told_with_their_sizes_as_last_known() -> None:
    slices = Slices(SimpleNamespace())  # type: ignore[arg-type]
    files = [File(name, 1, written_s * 10**9) for name, written_s in (("a", 70), ("b", 10), ("c", 130))]
    first, second, third = sliced("totals", "id BIGINT", files, 60.0, 1000.0)
    for each in (second, first, third):
        slices._state.seen[each.id] = SimpleNamespace(slice=each)  # type: ignore[assignment]
    copies = {"tm1": ({first.id, second.id}, {first.id: 700}), "tm2": ({second.id}, {second.id: 900})}
    for name, (ids, sizes) in copies.items():
        holder: Any = SimpleNamespace(manager=SimpleNamespace(id=name), copies=ids, bytes=sizes)
        slices._state.holders[name] = holder
    assert [(each.written_s, each.bytes) for each in slices.kept()] == [
        (10.0, {"tm1": 700}),
        (70.0, {"tm1": None, "tm2": 900}),
    ]
