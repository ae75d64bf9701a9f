"""Which cores a task manager gets."""

from __future__ import annotations

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.machine import cores


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(cores, "every_core", lambda: [0, 1, 2, 5])
    monkeypatch.setattr(cores, "cpu_quota", lambda: None)


def test_task_managers_share_cores_only_when_there_are_too_few():
    assert cores.core_sets(2, None) == [frozenset({0, 1}), frozenset({2, 5})]
    assert cores.core_sets(2, 1) == [frozenset({0}), frozenset({1})]
    assert cores.core_sets(3, 2) == [frozenset({0, 1}), frozenset({2, 5}), frozenset({0, 1})]
    assert cores.core_sets(0, None) == []


def test_one_more_gets_free_cores_first_then_the_last_ones():
    assert cores.free_cores(None, {0, 1}) == frozenset({2, 5})
    assert cores.free_cores(1, {0, 1, 2, 5}) == frozenset({5})
    assert cores.free_cores(None, {0, 1, 2, 5}) == frozenset({5})
    assert cores.free_cores(2, {0, 1, 2}) == frozenset({2, 5})


def test_of_shared_ones_those_that_the_fewest_have_come_first():
    assert cores.free_cores(1, [0, 1, 2, 5, 5]) == frozenset({2})
    assert cores.free_cores(2, [0, 1, 1, 2, 2, 5, 5]) == frozenset({0, 5})


@pytest.mark.parametrize("ask", [lambda: cores.core_sets(1, 5), lambda: cores.core_sets(1, 0)])
def test_more_cores_than_there_are_or_none_is_one_line(ask):
    with pytest.raises(UsageProblem):
        ask()


@pytest.mark.parametrize("count", [0, 5])
def test_one_more_is_refused_cores_that_are_not_there(count):
    with pytest.raises(UsageProblem, match="this machine has 4"):
        cores.free_cores(count, ())


@pytest.mark.parametrize("cpus", [{3}, {0, 9}, set()])
def test_cores_that_are_not_there_are_named(cpus):
    with pytest.raises(UsageProblem, match="this machine has 0, 1, 2, 5"):
        cores.check_cores(cpus)
