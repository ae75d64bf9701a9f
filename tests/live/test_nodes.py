"""Plans add and release task managers within a budget: with real servers, and an application that counts every row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from qod_magics.core.plan import Action, AddNode, Move, Plan, ReleaseNode, keeping_all
from qod_magics.core.runtime import Dials
from qod_magics.core.snapshot import Freshness, NodeState, Snapshot, replace
from qod_magics.errors import TaskManagerError
from qod_magics.session.session import Session
from tests.live.conftest import eventually, kafka_of, new_topic
from tests.live.steady import Steady
from tests.live.watching import Events, counted, declare_counts, home, running, settled
from tests.raising import breaks
from tests.texts import tells

COUNTS = "counts.1"
NO_THINNING = (600.0, 600.0)  #: what waits while a query moves is read in full


class Scripted:
    """Adds a task manager once one stands by, moves the counting query there and, once it runs there, releases it."""

    name = "scripted"

    def decide(self, snapshot: Snapshot, state: Any) -> tuple[Plan, Any]:
        """The plan; `state` is the step."""
        step, actions = state or 0, self._due(snapshot, state or 0)
        return replace(keeping_all(snapshot, actions), backlog_s=NO_THINNING), step + len(actions)

    def _due(self, snapshot: Snapshot, step: int) -> tuple[Action, ...]:
        counts = next((i for i in snapshot.instances if i.id == COUNTS), None)
        there = {manager.id for manager in snapshot.task_managers}
        if counts is None:
            return ()
        if step == 0 and NodeState.STANDBY in snapshot.node_states.values():
            return (AddNode("local", "one is not enough"),)
        if step == 1 and len(there) == 2:
            (other,) = there - {counts.task_manager}
            return (Move(COUNTS, other, "there is room"),)
        settled = counts.state == "running" and Freshness.of(counts).is_fresh
        if step == 2 and counts.task_manager != "tm1" and settled:
            return (ReleaseNode(counts.task_manager, "one is enough"),)
        return ()


@pytest.fixture
def budgeted(cluster: Session) -> Iterator[Session]:
    """One local task manager, and a budget of two; nobody decides until a policy is set."""
    options: dict[str, Any] = {**kafka_of(cluster), "jit": "c1", "period_s": 2.0}
    with Session.up(task_managers=1, cores=1, max_task_managers=2, **options) as session:
        session.pause()
        yield session


def decide_by(session: Session, policy: Any) -> None:
    session.thread.ask(lambda: setattr(session.controller, "policy", policy), "the policy is not set")
    session.resume()


def test_a_plan_adds_one_moves_a_query_there_and_releases_it(budgeted: Session) -> None:
    session, topic = budgeted, new_topic(budgeted)
    with Events(session) as events, Steady(session, topic) as steady:
        declare_counts(session, topic)
        eventually(lambda: counted(session) > 0, what="first results")
        decide_by(session, Scripted())
        up = events.first("task-manager-up", task_manager="tm2")
        assert up["why"] == "one is not enough"
        assert up["took_s"] < 5.0, "it stood by"
        moved = events.first("move", instance=COUNTS, to="tm2")
        assert moved["why"] == "there is room"
        removed = events.first("task-manager-removed", task_manager="tm2")
        assert removed["why"] == "one is enough"
        assert removed["took_s"] > 0
        eventually(lambda: session.runtime.nodes.states() == {"tm2": NodeState.STANDBY}, what=session.status)  # type: ignore[union-attr]
        assert home(session, COUNTS) == "tm1"
        assert events.first("move", instance=COUNTS, to="tm1")["why"] == "tm2 is removed"
        rows = steady.stop()
        books = settled(session, "src", rows, "src>counts")
        assert books["src"].dropped == books["src>counts"].dropped == 0
        eventually(lambda: counted(session) >= rows, every_s=0.5, what=lambda: f"{counted(session)} of {rows} rows")
        assert running(session)
        assert not [event for event in events.all if event.kind in ("task-manager-failed", "action-refused")]

    # what the user sees and does
    assert tells(session.status(), 1, 2, "tm2")
    cycle = session.last
    assert cycle is not None
    assert cycle.snapshot is not None
    (spare,) = cycle.snapshot.spares
    assert (spare.kind, spare.count, spare.start_s) == ("local", 1, 0.0)
    assert spare.cores == cycle.snapshot.task_managers[0].cores
    assert session.add_task_manager() == "tm2"
    with pytest.raises(TaskManagerError, check=breaks("budget", value=2)) as caught:
        session.add_task_manager()
    assert "\n" not in str(caught.value)
    assert session.remove_task_manager("tm2") is True
    with pytest.raises(TaskManagerError, check=breaks("not the last", name="tm1")):
        session.remove_task_manager("tm1")


def test_a_spare_server_joins_leaves_and_is_spare_again(cluster: Session) -> None:
    one, other = (cluster.runtime.task_managers[id].server for id in ("tm1", "tm2"))
    assert one is not None
    assert other is not None
    with (
        Session.up(
            task_managers=0,
            connect=[one.url],
            max_task_managers=2,
            spare_connect=[other.url],
            period_s=2.0,
            **kafka_of(cluster),
        ) as session,
        Events(session) as events,
    ):
        session.pause()

        def offered() -> list[tuple[str, int]]:
            return [(spare.kind, spare.count) for spare in session.runtime.observe().snapshot.spares]

        def apply(action: Action) -> None:
            session.runtime.apply(Plan({}, {}, (action,)), Dials({}, {}))

        assert offered() == [("connect", 1)]
        apply(AddNode("connect", "one is not enough"))
        added = events.first("task-manager-up", why="one is not enough")
        assert added["task_manager"] == "tm2"
        assert added["took_s"] > 0
        assert offered() == []
        apply(ReleaseNode("tm2", "one is enough"))
        events.first("task-manager-removed", task_manager="tm2", why="one is enough")
        eventually(lambda: offered() == [("connect", 1)], what=session.status)
        assert list(session.runtime.task_managers) == ["tm1"]
        assert other.child.alive()
        assert other.token not in session.status() + repr(session.runtime.nodes)
