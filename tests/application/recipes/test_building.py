"""Temporary views on a stand-in for a session, whose names ignore case as Spark's do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.application.recipes.building import temporary_views
from qod_magics.errors import ApplicationError
from tests.raising import breaks


class Session:
    """Its temporary views."""

    def __init__(self) -> None:
        self.views: dict[str, Rows] = {}
        self.catalog = self

    def tableExists(self, name: str) -> bool:
        return name.casefold() in self.views

    def getTable(self, name: str) -> Any:
        return SimpleNamespace(isTemporary=True)

    def dropTempView(self, name: str) -> bool:
        return self.views.pop(name.casefold(), None) is not None


class Rows:
    def __init__(self, session: Session) -> None:
        self.sparkSession = session

    def createOrReplaceTempView(self, name: str) -> None:
        self.sparkSession.views[name.casefold()] = self


@pytest.mark.parametrize("other", ["orders", "Orders", "ORDERS"])
def test_a_view_of_ours_is_replaced_whatever_its_case(other: str) -> None:
    session = Session()
    topic, stream = Rows(session), Rows(session)
    with temporary_views({"source": topic, "Orders": topic}):  # type: ignore[dict-item]
        with temporary_views({other: stream}):  # type: ignore[dict-item]
            assert session.views == {"source": topic, "orders": stream}
        assert set(session.views) == {"source"}
    assert session.views == {}


def test_a_topic_may_be_called_source_in_another_case() -> None:
    session = Session()
    topic = Rows(session)
    with temporary_views({"source": topic, "Source": topic}):  # type: ignore[dict-item]
        assert session.views == {"source": topic}
    assert session.views == {}


def test_a_view_of_the_user_is_not_lost() -> None:
    session = Session()
    session.views["orders"] = Rows(session)
    with (
        pytest.raises(ApplicationError, check=breaks("unique view", name="Orders")),
        temporary_views({"Orders": Rows(session)}),  # type: ignore[dict-item]
    ):
        pass
    assert "orders" in session.views


@pytest.mark.parametrize("step", ["create", "drop"])
def test_a_view_that_an_interrupt_left_is_replaced(step: str) -> None:
    class Interruptible(Session):
        interrupted = True

        def dropTempView(self, name: str) -> bool:
            if self.interrupted:
                raise KeyboardInterrupt
            return super().dropTempView(name)

    session = Interruptible()

    class Interrupted(Rows):
        def createOrReplaceTempView(self, name: str) -> None:
            super().createOrReplaceTempView(name)
            if step == "create":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), temporary_views({"Orders": Interrupted(session)}):  # type: ignore[dict-item]
        pass
    session.interrupted = False
    assert "orders" in session.views
    with temporary_views({"Orders": Rows(session)}):  # type: ignore[dict-item]
        pass
    assert session.views == {}
