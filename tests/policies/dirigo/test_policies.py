"""The policies in the engine: exact cases, and what holds for any messages."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.policies.dirigo import Options
from qod_magics.policies.dirigo.base import lessor, neighbours
from qod_magics.policies.dirigo.binding import by_laxity, shortest
from qod_magics.policies.dirigo.laxity_queue import chunks
from qod_magics.policies.dirigo.workers import Answer
from tests.policies.dirigo.oracles import DATA, NAMES, oracle
from tests.policies.dirigo.runs import ran


def options_of(run: dict[str, Any]) -> Options:
    return Options(
        account_running=run.get("account_running", True),
        force_migrate=run.get("FORCE_MIGRATE", True),
        search_range=max(len(run["draws"][0]), 1) if run["policy"].startswith("2RTT") else 2,
    )


def test_there_are_twelve_exact_cases() -> None:
    assert sorted(path.stem for path in DATA.glob("*.json")) == sorted(NAMES)
    assert len(NAMES) == 12


@pytest.mark.parametrize(
    ("case", "number"), [(case, number) for case, count in (("burst", 11), ("staggered", 5)) for number in range(count)]
)
def test_the_runs_of_the_cases(case: str, number: int) -> None:
    given_, expected = oracle(case)["input"], oracle(case)["expected"]
    assert len(expected) == len(given_["runs"]) == {"burst": 11, "staggered": 5}[case]
    run = given_["runs"][number]
    found = ran(
        run["policy"],
        given_["messages"],
        workers=given_["workers"],
        delay=given_["delay"],
        draws=run.get("draws"),
        options=options_of(run),
    )
    assert {"tasks": found.tasks, "messages": found.messages} == expected[number]


def test_dynamic_binding_chooses_as_in_the_cases() -> None:
    case = oracle("dbs-choice")
    for given_, expected in zip(case["input"], case["expected"], strict=True):
        answers = {int(m): Answer(int(m), 1, fits, length) for m, (fits, length) in given_["replies"].items()}
        found = {
            "QueueBasedDirect": shortest(given_["candidates"], answers),
            "LaxityBasedDirect": by_laxity(given_["candidates"], answers),
        }
        assert found == expected


def test_chunks_are_dealt_out() -> None:
    case = oracle("chunks")
    for number in case["input"]["SEARCH_RANGE"]:
        assert chunks(case["input"]["violators"], number) == case["expected"][str(number)]


def test_neighbours_go_upwards_and_around() -> None:
    case = oracle("neighbours")
    for each, expected in zip(case["input"], case["expected"], strict=True):
        assert list(neighbours(each["lessor"], each["N"], each["W"])) == expected


def test_a_lessor_is_a_stable_hash() -> None:
    assert [lessor(f"f/{k}", 128) for k in range(3)] == [lessor(f"f/{k}", 128) for k in range(3)]
    assert len({lessor(f"f/{k}", 128) for k in range(1000)}) > 120
