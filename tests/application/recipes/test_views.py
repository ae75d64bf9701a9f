"""Temporary views of the notebook's session: seen as they are made, and taken by the SQL cells that read them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from pyspark.sql.connect.functions import builtin as F
from pyspark.sql.connect.plan import (
    SQL,
    ChunkedCachedLocalRelation,
    CreateView,
    DataSource,
    Filter,
    LogicalPlan,
    Range,
    Read,
)
from pyspark.sql.connect.proto import Command

from qod_magics.application.application import Application
from qod_magics.application.cell import declaration_of
from qod_magics.application.recipes.recipe import SqlRecipe
from qod_magics.application.recipes.views import MadeViews, View, sql_over
from qod_magics.application.streams.options import parse_stream_line
from qod_magics.errors import ApplicationError

CLIENT: Any = None


def numbers(end: int = 9) -> LogicalPlan:
    return Filter(Range(0, end, 1), F.col("id") > 3)


def made(*steps: str | tuple[str, LogicalPlan]) -> MadeViews:
    """The views that are known after these SQL texts, and DataFrames made a view of a name."""
    views = MadeViews()
    for step in steps:
        views.note(text(step) if isinstance(step, str) else view(*step))
    return views


def text(query: str) -> Command:
    return SQL(query, [], {}, []).command(CLIENT)


def view(name: str, plan: LogicalPlan, is_global: bool = False) -> Command:
    return CreateView(plan, name, is_global, replace=True).command(CLIENT)


def test_a_view_of_a_data_frame_is_known_in_any_case() -> None:
    views = made(("Zones", numbers()))
    assert views.get("zones") == views.get("ZONES") is not None
    assert views.get("other") is None
    assert made(("zones", numbers())).get("zones") != made(("zones", numbers(8))).get("zones")


def test_the_same_cell_makes_an_equal_view() -> None:
    assert made(("v", numbers())).get("v") == made(("v", numbers())).get("v")


@pytest.mark.parametrize(
    "query",
    [
        "CREATE TEMP VIEW v AS SELECT id FROM range(3)",
        "create or replace temporary view V as\nSELECT id FROM range(3);",
        "-- zones\nCREATE OR REPLACE TEMP VIEW `v` AS SELECT id FROM range(3)",
    ],
)
def test_a_view_of_sql_is_its_query(query: str) -> None:
    found = made(query).get("v")
    assert found is not None
    assert b"SELECT id FROM range(3)" in found.plan
    assert b"VIEW" not in found.plan.upper()


def test_a_view_has_those_that_it_reads() -> None:
    views = made(
        ("zones", numbers()),
        "CREATE TEMP VIEW few AS SELECT * FROM zones WHERE id < 5",
        ("fewer", Filter(Read("few"), F.col("id") > 4)),
    )
    zones, few, fewer = (views.get(name) for name in ("zones", "few", "fewer"))
    assert few is not None
    assert few.reads == (zones,)
    assert fewer is not None
    assert fewer.reads == (few,)


@pytest.mark.parametrize(
    "query",
    [
        "DROP VIEW v",
        "CREATE OR REPLACE TEMP VIEW v AS SELECT (",
        "CREATE OR REPLACE TEMP VIEW v USING parquet OPTIONS (path '/x')",
        "CREATE OR REPLACE TEMP VIEW v (a) AS SELECT 1",
        "ALTER VIEW V AS SELECT 1",
    ],
)
def test_a_view_that_was_replaced_or_dropped_otherwise_is_unknown(query: str) -> None:
    views = made(("v", numbers()), ("vv", numbers()), query)
    assert views.get("v") is None
    assert views.get("vv") is not None


def test_queries_global_views_and_what_is_read_of_views_make_none() -> None:
    views = made(("v", numbers()), "SELECT * FROM v")
    views.note(view("g", numbers(), is_global=True))
    assert views.get("v") is not None
    assert views.get("g") is None


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (ChunkedCachedLocalRelation(["0" * 64], None), "Parquet"),
        (DataSource("rate", is_streaming=True), "%%qod_stream"),
        (Filter(ChunkedCachedLocalRelation(["0" * 64], None), F.col("id") > 3), "Parquet"),
    ],
)
def test_rows_of_one_session_and_streams_are_refused_in_one_line(plan: LogicalPlan, says: str) -> None:
    views = made(("inner", plan), ("v", Filter(Read("inner"), F.col("id") > 4)))
    for name in ("inner", "v"):
        found = views.get(name)
        assert found is not None
        with pytest.raises(ApplicationError, match=says) as caught:
            found.check()
        assert "\n" not in str(caught.value)


class Session:
    """Has a view of any name, and remembers which were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def views(self, names: Collection[str]) -> tuple[View, ...]:
        self.asked = sorted(names)
        return tuple(View(name, b"") for name in names)


def test_sql_takes_the_views_that_it_reads_besides_its_inputs() -> None:
    session = Session()
    options = parse_stream_line("q --topic trips --schema 'id INT' -p 1")
    body = "WITH few AS (SELECT * FROM zones) SELECT * FROM trips JOIN few USING (id) JOIN source s USING (id)"
    declaration = declaration_of(options, body, {}, Application(), session.views)
    assert session.asked == ["zones"]
    assert isinstance(declaration.recipe, SqlRecipe)
    assert declaration.recipe.views == (View("zones", b""),)


def test_global_views_are_refused() -> None:
    options = parse_stream_line("q --topic trips --schema 'id INT' -p 1")
    with pytest.raises(ApplicationError, match="createOrReplaceTempView") as caught:
        declaration_of(options, "SELECT * FROM trips JOIN global_temp.zones USING (id)", {}, Application())
    assert "\n" not in str(caught.value)


class Connected:
    """A session whose DataFrames are their plans."""

    def range(self, _: int) -> Any:
        return Frame(None, self)


class Frame:
    def __init__(self, plan: Any, session: Connected) -> None:
        self.plan, self.sparkSession = plan, session


def test_views_are_part_of_the_plan_those_first_that_others_read() -> None:
    views = made(("zones", numbers()), "CREATE TEMP VIEW few AS SELECT * FROM zones")
    few = views.get("few")
    assert few is not None
    session: Any = Connected()
    frame: Any = sql_over([few], session, "SELECT * FROM few WHERE id < :most", {"most": 7})
    relation = frame.plan.plan(CLIENT).with_relations
    assert relation.root.sql.query == "SELECT * FROM few WHERE id < :most"
    assert relation.root.sql.named_arguments["most"].literal.integer == 7
    kinds = [
        (each.subquery_alias.alias, each.subquery_alias.input.WhichOneof("rel_type")) for each in relation.references
    ]
    assert kinds == [("zones", "filter"), ("few", "sql")]
