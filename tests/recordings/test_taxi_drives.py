"""The generator that the other tests stand on: what it writes is a recording as the format has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.json_form import snapshot_from_json
from tests.recordings.taxi_drives import fair_shares, taxi_drives


@pytest.mark.parametrize("controlled", [True, False])
def test_snapshots_are_valid_and_books_exact(controlled: bool) -> None:
    for line in taxi_drives(controlled):
        snapshot_from_json(line["snapshot"])
        for count in line["measured"]["counts"].values():
            assert count["arrived"] == count["processed"] + count["dropped"] + count["waiting"]


def test_a_recording_is_a_function_of_its_seed() -> None:
    assert taxi_drives(seed=3) == taxi_drives(seed=3)
    assert taxi_drives(seed=3) != taxi_drives(seed=4)


def test_no_task_manager_gives_more_than_it_has() -> None:
    for line in taxi_drives():
        assert all(manager["cpu"] <= 100 * manager["cores"] + 1 for manager in line["snapshot"]["task_managers"])


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1e3), max_size=6), st.floats(0, 1e3))
def test_fair_shares_waste_nothing_and_favour_nobody(need: dict[str, float], budget: float) -> None:
    granted = fair_shares(need, budget)
    assert sum(granted.values()) == pytest.approx(min(budget, sum(need.values())))
    short = [granted[name] for name in need if granted[name] < need[name] - 1e-9]
    assert all(granted[name] <= min(short) + 1e-9 for name in need) if short else True
