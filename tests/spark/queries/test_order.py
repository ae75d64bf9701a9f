"""Queries whose result is in order: on servers that fix into how many partitions queries shuffle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import State
from qod_magics.spark.plans.job import PlanFacts
from qod_magics.spark.queries.instance import Instance
from tests.raising import breaks
from tests.spark.fakes import BOARD, Home, Query, Spark, instance


class Fixed(Spark):
    """A session whose settings nobody may change."""

    def get(self, key: str) -> str | None:
        return "40" if key == "spark.sql.shuffle.partitions" else super().get(key)

    def set(self, key: str, value: str) -> None:
        raise RuntimeError(f"{key} is fixed here")


class Writer:
    """Starts a query, however it is to write."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: Query() if name == "start" else self


class Builds(Home):
    """Builds plans without a server."""

    def workshop(self, *_: Any) -> Any:
        return self

    @contextmanager
    def result(self, *_: Any, **__: Any) -> Iterator[None]:
        yield None

    def writer(self, *_: Any) -> Writer:
        return Writer()


def started(spark: Spark, whole: str, checkpoint: str = "/nowhere") -> Instance:
    home = Builds("tm1", spark, kind="attached", cores=1.0, board=BOARD)  # type: ignore[arg-type]
    one = instance(home)
    one.facts, one.checkpoint, one.job = PlanFacts(keeps_state=True), checkpoint, replace(one.job, whole=whole)
    one.start(home, BOARD, {}, {})
    return one


@pytest.mark.parametrize("whole", ["ORDER BY", "ORDER BY and LIMIT"])
def test_a_result_in_order_is_refused_where_several_tasks_would_write_it(whole: str) -> None:
    with pytest.raises(TaskManagerError, check=breaks("order", name="T.1", value=40)):
        started(Fixed(), whole)


@pytest.mark.parametrize("whole", ["", "LIMIT"])
def test_other_results_are_written_by_as_many_as_the_server_says(whole: str) -> None:
    one = started(Fixed(), whole)
    assert (one.state, one.shuffles) == (State.RUNNING, 40)


def test_where_settings_are_free_one_task_writes_it() -> None:
    assert started(Spark(), "ORDER BY").shuffles == 1


def shuffled(checkpoint: Path, partitions: int) -> str:
    """A checkpoint whose query shuffles into so many partitions."""
    (checkpoint / "offsets").mkdir()
    conf = json.dumps({"conf": {"spark.sql.shuffle.partitions": str(partitions)}})
    (checkpoint / "offsets" / "0").write_text(f"v1\n{conf}\n{{}}")
    return str(checkpoint)


def test_a_query_that_goes_on_keeps_the_number_of_its_checkpoint(tmp_path: Path) -> None:
    assert started(Fixed(), "ORDER BY", shuffled(tmp_path, 1)).shuffles == 1


def test_a_checkpoint_that_keeps_several_is_refused_anywhere(tmp_path: Path) -> None:
    with pytest.raises(TaskManagerError, check=breaks("order", value=8)):
        started(Spark(), "ORDER BY", shuffled(tmp_path, 8))
