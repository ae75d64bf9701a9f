"""What a deployment keeps from one application to the next, without a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from qod_magics.application.python_recipe import PythonRecipe
from qod_magics.application.tasks import tasks
from qod_magics.spark.books import Account
from qod_magics.spark.deployment import Deployment
from qod_magics.spark.pipeline import same_columns
from tests.application.frames import application, stream

ROWS = StructType([StructField("id", LongType(), True), StructField("_weight", DoubleType(), False)])
MAY_BE_NULL = StructType([ROWS["id"], StructField("_weight", DoubleType(), True)])


def running(*declared: str) -> Deployment:
    """A deployment of `trips`, which a topic feeds, and the queries that read it."""
    made = Deployment(None, "s")  # type: ignore[arg-type]
    specs = tasks(application(stream("trips", topic="t"), *(stream(name, "trips", priority=1) for name in declared)))
    made.specs = {spec.id: spec for spec in specs}
    made.schemas = dict.fromkeys(made.specs, ROWS)
    made.results = {name: f"qod.s.{name}.out1" for name in declared}
    made.results_made = 1
    made.accounts = {spec.id: Account("t", {0: 7}) for spec in specs if spec.is_source}
    return made


def test_results_go_on_as_long_as_their_query_does() -> None:
    made = running("first")
    fused = made.specs["first"]
    (_, apart, _) = tasks(application(*fused.streams, stream("second", "trips", priority=1)))
    assert apart.id == "first"
    assert apart.members != fused.members
    assert made._results_topic(apart, {"first": MAY_BE_NULL}) == "qod.s.first.out1"


@pytest.mark.parametrize("what", ["recipe", "columns", "weight"])
def test_another_querys_rows_are_no_results_of_this_one(what: str) -> None:
    made = running("first")
    (spec,) = made.specs.values()
    columns = {
        "recipe": ROWS,
        "columns": StructType([StructField("id", StringType()), ROWS["_weight"]]),
        "weight": StructType([ROWS["id"]]),
    }[what]
    if what == "recipe":
        spec = replace(spec, streams=(spec.head, replace(spec.tail, recipe=PythonRecipe("trips.limit(1)"))))
    first = made._results_topic(spec, {"first": columns})
    assert first != "qod.s.first.out1"
    assert made._results_topic(spec, {"first": columns}) != first


def test_a_source_taken_out_of_its_chain_goes_on_with_its_account() -> None:
    made = running("first")
    alone, *_ = tasks(application(*made.specs["first"].streams, stream("second", "trips", priority=1)))
    assert alone.members == ("trips",)
    assert made._account_of_head(alone) is made.accounts["first"]
    elsewhere, *_ = tasks(application(stream("trips", topic="u", priority=1)))
    assert made._account_of_head(elsewhere) is None
    other, *_ = tasks(application(stream("rides", topic="t", priority=1)))
    assert made._account_of_head(other) is None


def test_nothing_compares_to_columns_that_are_not_known() -> None:
    assert same_columns(ROWS, MAY_BE_NULL)
    assert not same_columns(ROWS, None)
    assert not same_columns(None, None)
