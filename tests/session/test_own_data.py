"""The Spark session of the notebook's own, over the task managers that come and go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import TaskManagerError, UsageProblem
from qod_magics.kafka.clusters import Clusters
from qod_magics.session.own_data import NotebookSpark, OwnData
from qod_magics.session.session import Session
from tests.kafka.fakes import FakeKafka
from tests.raising import breaks


class Manager:
    """A task manager that makes sessions for the notebook."""

    def __init__(self, id: str, attached: object = None) -> None:
        self.id, self.notebooks = id, attached
        self.silent_since: float | None = None

    def alive(self) -> bool:
        return True

    def for_notebook(self) -> object:
        return self.notebooks or SimpleNamespace(is_stopped=False, client=SimpleNamespace(execute_command=print))


class Made:
    """Task managers, the sessions that are offered to the builder, and those that were released."""

    def __init__(self, *managers: Manager) -> None:
        self.answering, self.offered, self.released = list(managers), [], []
        cluster = SimpleNamespace(answering=lambda: self.answering, home=self.home)
        runtime: Any = SimpleNamespace(cluster=cluster)
        self.spark = NotebookSpark(
            runtime, offer=self.offered.append, let_go=lambda spark, _: self.released.append(spark)
        )

    def home(self) -> Manager:
        if not self.answering:
            raise TaskManagerError("No task manager is up")
        return self.answering[0]

    offered: list[Any]
    released: list[Any]


def test_it_is_one_as_long_as_its_task_manager_answers() -> None:
    one, two = Manager("tm1"), Manager("tm2")
    made = Made(one)
    first = made.spark.get()
    made.answering = [two, one]
    assert made.spark.get() is first
    made.answering = [two]  # the first one has left, or is silent
    second = made.spark.get()
    assert second is not first
    assert made.released == [first]
    assert made.offered == [first, second]
    made.spark.close()
    assert made.released == [first, second]


def test_one_that_was_stopped_is_replaced() -> None:
    made = Made(Manager("tm1"))
    first: Any = made.spark.get()
    first.is_stopped = True
    assert made.spark.get() is not first


def test_the_notebooks_own_is_neither_offered_nor_released() -> None:
    theirs = SimpleNamespace()
    made = Made(Manager("spark", theirs))
    assert made.spark.get() is theirs  # type: ignore[comparison-overlap]
    made.spark.close()
    assert made.offered == made.released == []


def test_without_a_task_manager_there_is_none() -> None:
    with pytest.raises(TaskManagerError):
        Made().spark.get()


@pytest.mark.parametrize(
    ("topic", "partitions"), [("a b", None), ("", None), ("trips", 0), ("trips", -1), ("trips", True)]
)
def test_a_topic_that_can_not_be_is_refused_before_anything_is_asked(topic: str, partitions: Any) -> None:
    with pytest.raises(UsageProblem):
        OwnData().topic(topic, partitions)
    with pytest.raises(UsageProblem):
        OwnData().send(topic, [{"a": 1}], partitions=partitions)


def test_nothing_is_written_to_a_broker_beside_which_there_is_a_second() -> None:
    """A topic that is there can be looked at."""
    session: Any = OwnData()
    session.kafka = FakeKafka({"trips": 1})
    session._clusters = Clusters(session.kafka, FakeKafka())  # type: ignore[arg-type]
    for write in (
        lambda: session.send("trips", [{"a": 1}]),
        lambda: session.send("new", [{"a": 1}], partitions=1),
        lambda: session.topic("new"),
        lambda: session.topic("trips", 2),
        lambda: Session.inject(session, {}),
    ):
        with pytest.raises(UsageProblem, check=breaks("writes")):
            write()
    assert "1 partition" in session.topic("trips")
    assert list(session.topics()) == ["trips"]
    assert session.kafka.producers == []
    assert session.kafka.ends("trips") == {0: 0}
