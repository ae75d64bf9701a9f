"""Moves under steady input: state goes with the query, no row is lost, the books stay exact."""

from __future__ import annotations

import pytest

from qod_magics.session.session import Session
from tests.live.conftest import eventually
from tests.live.steady import Steady
from tests.live.watching import Events, counted, declare_counts, home, running, settled


@pytest.fixture(params=[pytest.param("counts", marks=[pytest.mark.smoke, pytest.mark.versions]), "src"])
def moved(request: pytest.FixtureRequest) -> str:
    """The task that moves: the one with the state, or the one that sends to it."""
    task: str = request.param
    return task


def test_a_move_loses_nothing(brief: Session, topic: str, moved: str) -> None:
    session, instance = brief, f"{moved}.1"
    at_most = 0  # rows of batches that a move can have cut off: not reported when it began, sent when it ended
    with Steady(session, topic) as steady, Events(session) as events:
        declare_counts(session, topic)
        eventually(lambda: counted(session) > 0, what="first results")
        for moves in (1, 2):  # there and back
            begin = home(session, instance)
            end = "tm2" if begin == "tm1" else "tm1"
            reported = session.runtime.deployment.accounts["src"].processed  # by now; a cycle's books may be of before
            session.move(instance, end)
            at_most += steady.sent - reported
            assert home(session, instance) == end
            done = events.first("move", instance=instance, to=end)
            assert done["from"] == begin
            assert "by hand" in done["why"]
            assert len(events.of("move", instance=instance)) == moves
            assert done["took_s"] > 0
        rows = steady.stop()
        counts = settled(session, "src", rows, "src>counts")
        eventually(lambda: running(session), what=session.status)
        assert events.of("query-failed") == []

    source, stream = counts["src"], counts["src>counts"]
    assert (source.processed, source.dropped, source.unreported) == (rows, 0, 0)
    assert (stream.processed, stream.dropped, stream.unreported) == (stream.arrived, 0, 0)
    again = stream.arrived - rows  # what the sender had begun to send when it was stopped
    if moved == "counts":
        assert again == 0
    assert 0 <= again <= at_most
    eventually(lambda: counted(session) >= stream.arrived, what="the last results")
    assert counted(session) == stream.arrived
