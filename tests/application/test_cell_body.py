"""The language and the indentation of a cell's body."""

from __future__ import annotations

import pytest

from qod_magics.application.cell import dedented, is_sql

SQL = (
    "SELECT * FROM trips WHERE fare > 30",
    "  select zone, count(*) from trips group by zone",
    "-- per zone\nSELECT zone FROM trips",
    "/* per\nzone */ -- and so on\n\nSELECT zone FROM trips",
    "# a habit of Python\nSELECT zone FROM trips",
    "WITH z AS (SELECT * FROM zones) SELECT * FROM z",
    "with a (x, y) as (select 1, 2) select * from a",
    "FROM trips SELECT zone",
    "FROM trips |> WHERE fare > 3",
    "from `my trips` select zone",
    "VALUES (1, 2), (3, 4) AS t(a, b)",
    "(SELECT zone FROM trips)",
    "CREATE TABLE t (a INT)",
    "SELECT zone,\nFROM trips WHERE",
)
PYTHON = (
    "",
    "trips.where('fare > 3')",
    "trips.where(",
    "from pyspark.sql import functions as F\ntrips.where(",
    "from pyspark.sql.functions import col\n  oops",
    "with open('zones.csv') as file:\ntrips",
    "with_zones = trips\nwith_zones where",
    "selected = trips\nselected.where(",
    "select(trips)",
    "select = trips\nselect.where(",
    "show(trips\n",
    "update = trips.where(",
    "VALUES(1)",
    "# SELECT * FROM trips\ntrips",
    "'''SELECT'''\ntrips(",
)


@pytest.mark.parametrize("body", SQL)
def test_what_is_no_python_and_begins_as_sql_does_is_sql(body: str) -> None:
    assert is_sql(body)


@pytest.mark.parametrize("body", PYTHON)
def test_what_is_python_stays_python_also_where_it_is_wrong(body: str) -> None:
    assert not is_sql(body)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    trips.where('fare > 3')", "trips.where('fare > 3')"),
        ("\n\t# why\n\tx = 1\n\tif x:\n\t\tx = 2\n\ttrips", "\n# why\nx = 1\nif x:\n\tx = 2\ntrips"),
        ("# at the margin\n  x = 1\n  trips", "# at the margin\nx = 1\ntrips"),
        ("if x:\n    y = 1\ntrips", "if x:\n    y = 1\ntrips"),
        ("  # nothing but a comment\n", "  # nothing but a comment\n"),
    ],
)
def test_the_indentation_of_the_first_line_of_code_is_taken_off(body: str, expected: str) -> None:
    assert dedented(body) == expected
