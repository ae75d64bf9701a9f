"""What a session offers to others than its notebook: waiting for it, its health, and where its metrics go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import qod_magics
from qod_magics.errors import QueryError, UsageProblem
from qod_magics.monitoring.alarms import GIVEN_UP, SILENT, SILENT_S, STARVED, TARGET_MISSED, Alarms
from tests.monitoring.sessions import Session
from tests.raising import breaks


@pytest.fixture
def session() -> Iterator[Session]:
    made = Session()
    yield made
    made.down()


def test_the_public_names_are_there() -> None:
    for name in qod_magics.__all__:
        assert getattr(qod_magics, name) is not None
    assert issubclass(qod_magics.QueryError, qod_magics.QodError)
    with pytest.raises(AttributeError):
        qod_magics.no_such_name


def test_it_is_waited_for_without_blocking_the_event_loop(session: Session) -> None:
    async def main() -> int:
        task = asyncio.create_task(session.run(0.5))
        turns = 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0.01)
        return turns

    begun = time.monotonic()
    assert asyncio.run(main()) > 5
    assert time.monotonic() - begun >= 0.5
    assert session.alive


def test_waiting_ends_with_the_session(session: Session) -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(0.2, session.down)
        await asyncio.wait_for(session.run(), 10.0)

    asyncio.run(main())


def test_a_query_that_was_given_up_is_raised_with_its_cause(session: Session) -> None:
    session.alarm(GIVEN_UP)
    with pytest.raises(QueryError, check=breaks(GIVEN_UP, name="it", value="divided by 0")):
        asyncio.run(session.run(5.0))


@pytest.mark.parametrize("kind", [STARVED, SILENT])
def test_the_rest_is_raised_once_the_tolerance_is_used_up(session: Session, kind: str) -> None:
    session.alarm(kind, 10.0)
    asyncio.run(session.run(0.1))
    with pytest.raises(QueryError, check=breaks(kind)):
        asyncio.run(session.run(5.0, tolerate_s=9.0))


def test_a_missed_target_is_none_of_these(session: Session) -> None:
    session.alarm(TARGET_MISSED, 1000.0)
    assert session.problem(0.0) is None
    assert session.health() == ""


@pytest.mark.parametrize(("kind", "well"), [(GIVEN_UP, False), (SILENT, False), (STARVED, True)])
def test_health(session: Session, kind: str, well: bool) -> None:
    assert session.health() == ""
    session.alarm(kind)
    assert session.health() == ("" if well else f"{kind} it"), "no cause, which may quote rows"


def test_a_controller_that_is_silent_is_found_by_whoever_asks(session: Session) -> None:
    session.monitor.alarms = Alarms(time.monotonic() - SILENT_S - 1.0)
    assert session.health() == "controller-silent controller"
    with pytest.raises(QueryError, check=breaks(SILENT, name="controller")):
        asyncio.run(session.run(5.0, tolerate_s=0.0))


@pytest.mark.parametrize(
    "options", [{"off": True, "port": 0}, {"token_file": "x"}, {"token_file": "x", "file": "y.prom"}]
)
def test_options_that_do_not_go_together_are_refused(session: Session, options: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem):
        session.metrics(**options)


def test_metrics_are_served_until_off(session: Session, tmp_path: Path) -> None:
    assert "nowhere" in session.metrics()
    said = session.metrics(port=0, token_file=tmp_path / "token", file=tmp_path / "qod.prom")
    assert said == session.metrics()
    assert (tmp_path / "qod.prom").exists()
    assert "nowhere" in session.metrics(off=True)
    assert not (tmp_path / "qod.prom").exists()
