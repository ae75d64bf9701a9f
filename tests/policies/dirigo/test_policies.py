"""The policies of Dirigo: bindings, offloading, the central scheduler, and the registry."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.core.engines import MS, Topology
from qod_magics.errors import UsageProblem
from qod_magics.policies.dirigo import CentralRandom, Options
from qod_magics.policies.dirigo.base import Dirigo, lessor, neighbours
from qod_magics.policies.dirigo.binding import by_laxity, shortest
from qod_magics.policies.dirigo.queues import Answer, chunks
from qod_magics.policies.of_engines import dispatcher, dispatcher_names
from qod_magics.simulator.messages import Dataflow, Engine, Job, Source, Stage
from qod_magics.simulator.messages.dataflow import Sent
from tests.policies.dirigo.oracles import DATA, NAMES, oracle
from tests.policies.dirigo.runs import ran
from tests.raising import breaks
from tests.simulator.messages.listed import Listed


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


@pytest.mark.parametrize("decision", [0, 1])
def test_decisions_are_made_one_after_another(decision: int) -> None:
    """Ten messages at once, 1 ms each, on enough workers: what they wait for is the scheduler."""
    sent = tuple(Sent(0, 0, 1) for _ in range(10))
    job = Job("job", (Stage("run", ("client",), fixed_us=1000),), (Source("client", arrivals=Listed(sent)),))
    dispatcher = CentralRandom(decision=decision * MS)
    engine = Engine(Dataflow([job], machines=400, delay_us=100), dispatcher)
    engine.run(MS, end=10**10)
    engine.check()
    assert engine.books.left == 0
    assert dispatcher.traffic.forwards == len(engine.results.jobs[0].latency) == 10
    assert engine.busy[0] == 10 * decision * MS
    first, last = min(engine.results.jobs[0].produced), max(engine.results.jobs[0].produced)
    assert first == 1_200_000 + decision * MS
    assert last >= 1_200_000 + 10 * decision * MS


MINE = [name for name in dispatcher_names() if name.startswith("dirigo-")]


@pytest.mark.parametrize("name", [*MINE, "central-random"])
def test_each_call_makes_a_new_one(name: str) -> None:
    one, other = dispatcher(name), dispatcher(name)
    assert isinstance(one, Dirigo)
    assert one is not other
    assert one.name == name
    one.begin(Topology((), (0, 1)))
    one.check()


def test_all_policies_have_a_name() -> None:
    assert len(MINE) == 8


def test_a_central_scheduler_needs_others() -> None:
    with pytest.raises(UsageProblem, check=breaks("two machines")):
        CentralRandom().begin(Topology((), (0,)))
