"""Hashes of cells: the same in every process, another one for each change that matters."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from qod_magics.application import fingerprints
from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.recipes.recipe import FunctionRecipe, Recipe, SqlRecipe
from qod_magics.application.streams.sink import KafkaTopic
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import TopicInput
from qod_magics.application.tasks import TaskSpec

CELLS = textwrap.dedent(
    """
    from qod_magics.application import fingerprints
    from qod_magics.application.recipes.python import PythonRecipe
    from qod_magics.application.recipes.recipe import FunctionRecipe
    from qod_magics.application.streams.topic_input import TopicInput
    from qod_magics.application.streams.stream import StreamDeclaration

    FACTOR, KINDS = 2, {"taxi", "bus", "tram", "metro"}

    def scaled(x, *, by=FACTOR):
        return x * by if x in KINDS else (lambda y: y + 1)(x)

    def of(rows):
        return rows.select(scaled(rows.n))

    for recipe in (PythonRecipe("source.map(scaled)", globals()), FunctionRecipe(of)):
        print(fingerprints.of_recipe(StreamDeclaration("a", recipe, TopicInput("t"))))
    """
)


def test_they_are_the_same_in_every_process() -> None:
    """Where sets and ids differ."""
    found = {
        subprocess.run(
            [sys.executable, "-c", CELLS],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    (lines,) = found
    first, second = lines.split()
    assert len(first) == len(second) == fingerprints.LENGTH
    assert first != second


def of(recipe: Recipe, **settings: Any) -> str:
    stream = StreamDeclaration("a", recipe, TopicInput("t", "n INT"), **settings)
    return fingerprints.of_work(TaskSpec((stream,), is_query=True))


def cell(text: str, **namespace: Any) -> PythonRecipe:
    return PythonRecipe(text, namespace)


def kind_of_cell(value: int) -> type:
    """A class of a cell, with a method that returns this."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(f"class Kind:\n    def get(self): return {value}", space)
    made: type = space["Kind"]
    return made


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SqlRecipe("SELECT 1 FROM t"), SqlRecipe("SELECT 2 FROM t")),
        (SqlRecipe("SELECT 1 FROM t"), SqlRecipe("SELECT 1 FROM t", estimates=True)),
        (SqlRecipe("SELECT 1 FROM t"), cell("SELECT")),
        (cell("source.limit(n)", n=1), cell("source.limit(n)", n=2)),
        (cell("source.limit(n)", n=[1, 2]), cell("source.limit(n)", n=[2, 1])),
        (cell("source.limit(n)", n=1), cell("source.limit(n)", n="1")),
        (cell("source.where(n)", n=date(2024, 1, 1)), cell("source.where(n)", n=date(2025, 1, 1))),
        (cell("source.where(n)", n=Decimal("1.0")), cell("source.where(n)", n=Decimal("1.5"))),
        (cell("source.where(n)", n=re.compile("a" * 300)), cell("source.where(n)", n=re.compile("a" * 300 + "b"))),
        (cell("source.where(n)", n=kind_of_cell(1)), cell("source.where(n)", n=kind_of_cell(2))),
        (FunctionRecipe(lambda a: a.limit(1)), FunctionRecipe(lambda a: a.limit(2))),
    ],
)
def test_another_recipe_has_another_hash(one: Recipe, other: Recipe) -> None:
    assert of(one) == of(one)
    assert of(one) != of(other)


def test_values_that_hold_themselves_have_a_hash() -> None:
    itself: list[Any] = [1]
    itself.append(itself)
    assert fingerprints.digest(itself) == fingerprints.digest(itself) != fingerprints.digest([1, 1])


def test_restrictions_are_no_part_of_it_and_settings_are() -> None:
    recipe = cell("source")
    assert of(recipe, priority=1, min_accuracy=0.3) == of(recipe, priority=2)
    assert of(recipe, priority=1) != of(recipe, sink=KafkaTopic("out"))
    assert of(recipe, priority=1) != of(recipe, priority=1, parallelism=2)


def test_a_checkpoint_depends_on_the_columns_of_an_avro_schema_not_on_its_words() -> None:
    def settings(field: dict[str, Any]) -> str:
        schema = json.dumps({"type": "record", "name": "T", "fields": [{"name": "n", "type": "int", **field}]})
        source = TopicInput("t", schema, format="avro")
        return fingerprints.of_settings(TaskSpec((StreamDeclaration("a", PythonRecipe("source"), source),), True))

    assert settings({"doc": "how many"}) == settings({})
    assert settings({"type": "long"}) != settings({})
