"""What a budget allows, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.session.pool import CONNECT, LOCAL, Budget
from tests.machine.fakes import FakeMachine, on, unclaimed
from tests.raising import breaks
from tests.texts import tells


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    on(FakeMachine(), monkeypatch)
    unclaimed(monkeypatch)


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"most": None, "local": 0}, "one to start with"),
        ({"most": 3, "local": 0}, "one to start with"),
        ({"most": 1, "local": 2}, "room for the first"),
        ({"most": 1, "local": 1, "connect": ["sc://a"]}, "room for the first"),
        ({"most": 2, "local": 0, "connect": ["sc://a"]}, "room to grow"),
        (
            {"most": None, "local": 0, "connect": ["sc://a"], "cores": 4},
            "a local one",
        ),
        ({"most": None, "local": 1, "standby": False}, "a budget"),
        ({"most": None, "local": 1, "spare_connect": ["sc://a"]}, "a budget"),
    ],
)
def test_a_wrong_one_is_refused_in_one_line(wrong: dict[str, Any], rule: str) -> None:
    with pytest.raises(UsageProblem, check=breaks(rule)):
        Budget(**wrong)


def test_the_cores_are_divided_among_all_that_may_be_up() -> None:
    assert Budget(None, 1).core_sets() == [frozenset({0, 1, 2, 5})]
    assert Budget(2, 1).core_sets() == [frozenset({0, 1})]
    assert Budget(3, 1, ["sc://a"]).core_sets() == [frozenset({0, 1})]
    assert Budget(3, 2, cores=2).core_sets() == [frozenset({0, 1}), frozenset({2, 5})]


def test_where_they_are_too_few_it_says_so_in_one_line() -> None:
    assert Budget(4, 1).sharing == ""
    assert Budget(None, 6).sharing == ""
    told = "up to 6 local task managers of 1 core each on this machine's 4 cores: from the 5th on they share cores"
    assert Budget(6, 1).sharing == told
    assert tells(Budget(3, 1, cores=2).sharing, 2, 4, "3rd")


@pytest.mark.parametrize(
    ("budget", "kinds"),
    [
        (Budget(2, 1), (LOCAL,)),
        (Budget(3, 1, ["sc://a"]), (LOCAL, CONNECT)),
        (Budget(2, 0, ["sc://a"], ["sc://b"]), (CONNECT,)),
    ],
)
def test_local_ones_are_added_only_to_local_ones(budget: Budget, kinds: tuple[str, ...]) -> None:
    assert budget.kinds == kinds


def test_it_shows_no_url() -> None:
    assert "secret" not in repr(Budget(3, 1, ["sc://a:1/;token=secret"], ["sc://b:1/;token=secret"]))
