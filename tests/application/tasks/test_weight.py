"""When the weight of a recipe's rows is known."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.application.tasks import tasks
from qod_magics.application.weights import (
    LEFT_OUT,
    NOT_INDEPENDENT,
    Weights,
    origins,
    spelled,
    weighed_since,
    weight_problem,
)
from qod_magics.estimate.groups import Groups
from tests.application.frames import application, stream

A, B = frozenset({"topic a"}), frozenset({"topic b"})


@pytest.mark.parametrize(
    ("columns", "inputs", "problem"),
    [
        (["id", "_weight"], [A], None),
        (["id", "_weight"], [], None),  # of a recipe with a source of its own
        (["id"], [A], LEFT_OUT),
        (["id", "_weight", "name", "_weight"], [A, B], None),
        (["id", "_weight", "id", "_weight"], [A], NOT_INDEPENDENT),  # joined with itself
        (["id", "_weight", "id", "_weight"], [], NOT_INDEPENDENT),
        (["id", "_weight", "id", "_weight"], [A, A], NOT_INDEPENDENT),
        (["id", "_weight", "id", "_weight"], [A, A | B], NOT_INDEPENDENT),
        (["id", "_weight", "id", "_weight", "_weight"], [A, B], NOT_INDEPENDENT),
        (["id", "_weight"], [A, A | B], None),  # a union
    ],
)
def test_a_weight_is_known_of_one_input_and_of_separate_ones(
    columns: list[str], inputs: list[frozenset[str]], problem: str | None
) -> None:
    assert weight_problem(columns, inputs) == problem


class Named:
    """Columns of a DataFrame, whose names Spark compares in any case."""

    def __init__(self, *columns: str) -> None:
        self.columns = list(columns)

    def withColumnRenamed(self, old: str, new: str) -> Named:
        return Named(*(new if name.lower() == old.lower() else name for name in self.columns))


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (["id", "_WEIGHT"], ["id", "_weight"]),
        (["_Weight", "id", "_weight"], ["_weight", "id", "_weight"]),
        (["ID", "_weight", "net_weight"], ["ID", "_weight", "net_weight"]),
    ],
)
def test_a_weight_is_one_as_the_query_spells_it(columns: list[str], found: list[str]) -> None:
    rows: Any = Named(*columns)
    assert spelled(rows).columns == found


def test_rows_come_from_topics_however_many_streams_are_between() -> None:
    specs = tasks(
        application(
            stream("a", topic="one"),
            stream("b", "a", fuse=False),
            stream("c", "a", fuse=False),
            stream("d", topic="two"),
            stream("own"),
            stream("e", "b", "c", "own"),
            stream("f", "d", "e", priority=1),
        ),
    )
    found = origins(specs)
    assert found["b"] == found["c"] == {"topic one"}
    assert found["e"] == {"topic one", "source of own"}
    assert found["f"] == {"topic one", "topic two", "source of own"}


def test_weights_count_from_the_groups_on_that_estimates_make() -> None:
    specs = tasks(
        application(
            stream("rows", topic="t", fuse=False),
            stream("zones", "rows", fuse=False),
            stream("busy", "zones", fuse=False),
            stream("total", "busy", priority=1),
            stream("other", "rows", priority=1),
        )
    )
    none = frozenset[str]()
    weights = Weights(
        groups={"zones": Groups(none, False, True), "busy": Groups(none, False), "sums": Groups(none, True)}
    )
    assert weighed_since(specs, weights) == {"zones": "zones", "busy": "zones"}
    together = tasks(
        application(stream("rows", topic="t", fuse=False), stream("zones", "rows"), stream("busy", "zones", priority=1))
    )
    assert [spec.members for spec in together] == [("rows",), ("zones", "busy")]
    assert weighed_since(together, weights) == {"busy": "zones"}  # named as before it was fused: readers run on
