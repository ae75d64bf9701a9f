"""Queries in parts: whatever the parts are, they merge to the result of the whole. SQLite stands in for Spark."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp
from sqlglot.errors import ParseError

from qod_magics.application.sql.functions import OF_ROWS, SYNTAX, called
from qod_magics.application.sql.names import formatted, is_aggregate
from qod_magics.application.sql.splitting import NOW, PARTS, ROWS, Bound, NotSplit, as_parsed, split
from qod_magics.errors import ApplicationError

COLUMNS = ("zone", "fare", "at")
Row = tuple[Any, ...]

#: Texts that split; results of those with `True` are in a total order.
TEXTS = [
    ("SELECT * FROM totals", False),
    ("SELECT t.* FROM totals AS t WHERE t.fare > 1", False),
    ("SELECT zone, fare + 1 AS more FROM totals WHERE zone IS NOT NULL OR fare < 2", False),
    ("SELECT DISTINCT zone FROM totals ORDER BY zone DESC NULLS FIRST LIMIT 2 OFFSET 1", True),
    ("SELECT zone, fare, at FROM totals ORDER BY 3, fare, ZONE LIMIT 5", True),
    ("SELECT zone FROM totals ORDER BY zone", True),
    ("SELECT count(*) FROM totals", True),
    ("SELECT count(*) AS n, count(fare), sum(fare), min(fare), max(at), avg(fare) FROM totals WHERE zone < 3", True),
    ("SELECT sum(fare) / count(*) AS x, max(zone) - min(zone) FROM totals HAVING count(*) > 2", True),
    ("SELECT zone, count(*) FROM totals GROUP BY zone ORDER BY zone", True),
    ("SELECT zone AS z, sum(fare) AS s FROM totals GROUP BY z HAVING s > 1 ORDER BY s DESC, z LIMIT 3", True),
    ("SELECT avg(fare), zone FROM totals GROUP BY 2 ORDER BY count(*), 2", True),
    ("SELECT zone + 1 AS more, avg(fare) FROM totals GROUP BY zone + 1 ORDER BY zone + 1", True),
    ("SELECT zone, avg(fare) FILTER (WHERE at > 3), count(*) FILTER (WHERE fare > 1) FROM totals GROUP BY zone", False),
    ("SELECT t.zone, sum(t.fare) FROM totals t WHERE t.at <= :most GROUP BY t.zone", False),
    ("SELECT max(fare) FROM totals WHERE at < CURRENT_TIMESTAMP - 2", True),
    ("SELECT CASE WHEN zone > 1 THEN 'far' ELSE 'near' END AS how, max(fare) FROM totals GROUP BY how", False),
]

ROWS_OF = st.lists(
    st.tuples(
        st.none() | st.integers(0, 4),
        st.none() | st.integers(-8, 8).map(lambda n: n / 4),
        st.integers(0, 9),
    ),
    max_size=30,
)


def sqlite(sql: str) -> str:
    return sqlglot.transpile(sql, read="spark", write="sqlite")[0].replace("(DISTINCT ", "( DISTINCT ")


def run(sql: str, tables: dict[str, tuple[Sequence[str], Sequence[Row]]], **values: Any) -> list[Row]:
    with sqlite3.connect(":memory:") as engine:
        engine.create_function("TRY_DIVIDE", 2, lambda a, b: None if not b else a / b, deterministic=True)
        for name, (columns, rows) in tables.items():
            engine.execute(f"CREATE TABLE {name} ({', '.join(f'`{each}`' for each in columns)})")
            engine.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
        return engine.execute(sqlite(sql), values).fetchall()


def columns_of(sql: str, **values: Any) -> list[str]:
    with sqlite3.connect(":memory:") as engine:
        engine.execute(f"CREATE TABLE {ROWS} ({', '.join(COLUMNS)})")
        return [each[0] for each in engine.execute(sqlite(sql), values).description]


@given(rows=ROWS_OF, places=st.lists(st.integers(0, 3), min_size=30, max_size=30), text=st.sampled_from(TEXTS))
def test_any_parts_merge_to_the_result_of_the_whole(rows: list[Row], places: list[int], text: tuple[str, bool]) -> None:
    sql, ordered = text
    found = split(sql, "totals", COLUMNS)
    values = {NOW: 9, "most": 6}
    parts = [[row for row, place in zip(rows, places, strict=False) if place == part] for part in range(4)]
    columns = columns_of(found.part, **values)
    partial = [row for part in parts for row in run(found.part, {ROWS: (COLUMNS, part)}, **values)]
    merged = run(found.merge({}), {PARTS: (columns, partial)}, **values)
    whole = run(sql.replace("CURRENT_TIMESTAMP", f":{NOW}"), {"totals": (COLUMNS, rows)}, **values)
    assert merged == whole if ordered else sorted(map(repr, merged)) == sorted(map(repr, whole))
    assert len(columns_of(found.whole.replace("CURRENT_TIMESTAMP()", "1"), **values)) == found.columns


#: Aggregates of Spark that do not split.
AGGREGATES = [
    "any",
    "any_value",
    "approx_count_distinct",
    "approx_percentile",
    "array_agg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "collect_list",
    "collect_set",
    "corr",
    "count_if",
    "covar_pop",
    "covar_samp",
    "every",
    "first",
    "first_value",
    "grouping",
    "histogram_numeric",
    "hll_sketch_agg",
    "kurtosis",
    "last",
    "last_value",
    "listagg",
    "max_by",
    "mean",
    "median",
    "min_by",
    "mode",
    "percentile",
    "percentile_approx",
    "regr_avgx",
    "regr_count",
    "regr_slope",
    "skewness",
    "some",
    "std",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "try_avg",
    "try_sum",
    "var_pop",
    "var_samp",
    "variance",
    "est_sum",
    "my_own_function",
]


@pytest.mark.parametrize("name", AGGREGATES)
def test_other_aggregates_are_not_split(name: str) -> None:
    refused = []
    for arguments in ("fare", "fare, at"):
        with pytest.raises((NotSplit, ApplicationError)) as caught:
            split(f"SELECT zone, {name}({arguments}) FROM totals GROUP BY zone", "totals", COLUMNS)
        refused.append(caught.type)
    assert NotSplit in refused


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(DISTINCT zone) FROM totals",
        "SELECT sum(DISTINCT fare) FROM totals",
        "SELECT sum(fare) OVER (PARTITION BY zone) FROM totals",
        "SELECT a.zone FROM totals a JOIN totals b ON a.at = b.at",
        "SELECT zone FROM totals, other",
        "SELECT zone FROM other",
        "SELECT zone FROM totals UNION ALL SELECT zone FROM totals",
        "WITH totals AS (SELECT 1 AS zone) SELECT zone FROM totals",
        "SELECT zone FROM (SELECT * FROM totals)",
        "SELECT zone FROM totals WHERE fare > (SELECT avg(fare) FROM totals)",
        "SELECT zone FROM totals ORDER BY fare",
        "SELECT zone, count(*) FROM totals GROUP BY ROLLUP (zone)",
        "SELECT zone, count(*) FROM totals GROUP BY GROUPING SETS ((zone), ())",
        "SELECT fare FROM totals GROUP BY zone",
        "SELECT count(DISTINCT zone) + sum(fare) FROM totals",
        "SELECT DISTINCT zone, count(*) FROM totals GROUP BY zone",
        "SELECT zone, rand() FROM totals",
        "SELECT zone FROM totals WHERE at < current_date",
        "SELECT monotonically_increasing_id() FROM totals",
        "SELECT _metadata.file_path FROM totals",
        "SELECT explode(array(zone, at)) FROM totals",
        "SELECT zone FROM totals TABLESAMPLE (10 PERCENT)",
        "SELECT * EXCEPT (zone) FROM totals",
        "SELECT totals.zone FROM totals LATERAL VIEW explode(array(1)) x AS y",
        "SELECT zone FROM totals QUALIFY row_number() OVER (ORDER BY at) = 1",
        "SELECT sum(count(*)) FROM totals GROUP BY zone",
        "SELECT zone FROM totals HAVING zone > 1",
        "SELECT zone AS fare, sum(at) FROM totals GROUP BY zone HAVING fare > 1",
    ],
)
def test_what_parts_can_not_tell_is_not_split(sql: str) -> None:
    with pytest.raises(NotSplit):
        split(sql, "totals", COLUMNS)


def test_what_is_no_query_is_refused() -> None:
    with pytest.raises(ApplicationError):
        split("DROP TABLE totals", "totals", COLUMNS)


def test_conditions_that_must_hold_bound_columns() -> None:
    sql = """SELECT count(*) FROM totals t WHERE (t.W.start >= now() - INTERVAL '5' MINUTES AND '2026' > at)
             AND zone BETWEEN 1 AND 3 AND (fare > 1 OR at < 3) AND zone < at AND NOT at = 4"""
    assert split(sql, "totals", ["w", *COLUMNS]).bounds == (
        Bound("w.start", ">=", f":{NOW} - INTERVAL '5' MINUTES"),
        Bound("at", "<", "'2026'"),
        Bound("zone", ">=", "1"),
        Bound("zone", "<=", "3"),
    )


def test_fields_of_a_window_that_is_grouped_by_split_and_decimals_keep_their_type() -> None:
    found = split("SELECT w.start, sum(fare) FROM totals GROUP BY w", "totals", ["w", *COLUMNS])
    assert "`_k0`.`start`" in found.merge({"_p0": "decimal(20,2)"})
    assert "DECIMAL(20, 2)" in found.merge({"_p0": "decimal(20,2)"})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT zone FROM totals WHERE at >= TIMESTAMP '2026-01-01 00:03:00' OR at < DATE '2026-01-01'",
        "SELECT zone IS NOT NULL FROM totals WHERE at IS NOT NULL AND (fare IS NULL OR NOT zone IS TRUE)",
        "SELECT DATE_TRUNC('hour', at) AS h, COUNT(*) FROM totals GROUP BY 1",
        "SELECT zone FROM totals WHERE fare = 'DATE' AND at > CURRENT_TIMESTAMP() - INTERVAL '5' MINUTES",
    ],
)
def test_a_text_as_it_was_parsed_is_that_of_the_whole(sql: str) -> None:
    whole = split(sql, "totals", COLUMNS).whole.replace(f"{ROWS} AS `totals`", "totals")
    assert as_parsed(sql) == whole


def test_a_text_as_a_format_names_its_tables_and_keeps_braces() -> None:
    sql = "SELECT '{a}', totals.zone FROM totals JOIN Totals AS t ON t.zone = totals.zone WHERE totals.fare > 1"
    assert formatted(sql, {"totals": "q"}) == (
        "SELECT '{{a}}', totals.zone FROM {q} AS `totals` JOIN {q} AS t ON t.zone = totals.zone WHERE totals.fare > 1"
    )


@pytest.mark.parametrize(
    "text",
    [
        *("TIMESTAMP 'today'", "DATE 'yesterday'", "TIMESTAMP 'now'", "TIMESTAMP ' Tomorrow'", "DATE 'epoch'"),
        *("TIMESTAMP '12:00'", "TIMESTAMP 'T12:00:00'", "TIMESTAMP_NTZ '2026-01-01'", "TIMESTAMP_LTZ 'now'"),
    ],
)
def test_a_literal_that_is_no_cast_of_its_text_stays(text: str) -> None:
    sql = f"SELECT zone FROM totals WHERE at >= {text}"
    assert as_parsed(sql) == sql  # so that Spark tells it from the text of the parser


def test_functions_that_give_a_value_for_each_row_split() -> None:
    sql = "SELECT timestamp_seconds(at) AS t, window(at, '10 s'), count(*) FROM totals WHERE now() > at GROUP BY 1, 2"
    assert called(sql) == {"timestamp_seconds", "window", "count", "now"}
    assert split(sql, "totals", COLUMNS).columns == 3
    assert not any(is_aggregate(node) for name in OF_ROWS for node in calls(name))
    assert not OF_ROWS & {*AGGREGATES, *NOT_OF_ROWS}


def calls(name: str) -> list[exp.Func]:
    for arguments in ("a, b", "a", "a AS INT", "DAY FROM a", ""):
        with contextlib.suppress(ParseError):
            return list(sqlglot.parse_one(f"SELECT {name}({arguments})", read="spark").find_all(exp.Func))
    return []


#: Functions whose value depends on other rows, on the place, on the time, or on chance.
NOT_OF_ROWS = [
    "session_window",
    "window_time",
    "monotonically_increasing_id",
    "spark_partition_id",
    "input_file_name",
    "input_file_block_start",
    "stack",
    "inline",
    "json_tuple",
    "posexplode",
    "reflect",
    "java_method",
    "try_reflect",
    "assert_true",
    "curdate",
    "current_time",
    "current_user",
    "unix_timestamp",
    "uniform",
    "randstr",
    "shuffle",
    "random",
    "aes_encrypt",
    "uuid",
    "version",
    "my_own",
    "`session_window`",
    "Session_Window ",
    "other.upper",
    "system.builtin.upper",
]


@pytest.mark.parametrize("name", NOT_OF_ROWS)
def test_other_functions_do_not_split(name: str) -> None:
    for text in (f"{name}(at, '5 minutes')", f"{name} /* so */ (at)", f"{name}()", f"upper({name}(at))"):
        refused = (NotSplit, ApplicationError)
        with pytest.raises(refused):
            split(f"SELECT {text} AS w FROM totals", "totals", COLUMNS)
        with pytest.raises(refused):
            split(f"SELECT {text} AS w, count(*) FROM totals GROUP BY 1", "totals", COLUMNS)


@pytest.mark.parametrize(
    "name", ["user", "current_user", "session_user", "current_time", "grouping__id", "current_date"]
)
def test_a_name_of_no_column_does_not_split_as_it_may_be_a_function(name: str) -> None:
    with pytest.raises(NotSplit):
        split(f"SELECT {name} AS x, fare FROM totals", "totals", COLUMNS)
    with pytest.raises(NotSplit):
        split(f"SELECT {name}, count(*) FROM totals GROUP BY {name}", "totals", COLUMNS)
    assert split("SELECT user FROM totals WHERE user = 'me' GROUP BY user", "totals", ["user"]).columns == 1


def test_a_column_of_the_same_result_and_a_position_given_as_a_parameter_do_not_split() -> None:
    for sql in ("SELECT fare + 1 AS x, x * 2 AS y FROM totals", "SELECT 1 AS x, count(*) FROM totals GROUP BY :n"):
        with pytest.raises(NotSplit):
            split(sql, "totals", COLUMNS)


def test_words_of_the_syntax_are_no_functions() -> None:
    sql = """SELECT CASE WHEN (zone IN (1, 2)) THEN (fare) ELSE (0) END AS x, CAST(fare AS DECIMAL(10, 2)),
             sum(fare) FILTER (WHERE (at) > 1 AND (zone = 'f(x)' OR NOT (zone BETWEEN (1) AND (2)))) -- upper(zone)
             FROM totals WHERE (fare > 1) GROUP BY (zone) HAVING (count(*) > 1) ORDER BY (zone) LIMIT (1)"""
    assert called(sql) == {"cast", "sum", "count"}
    assert not SYNTAX & {*AGGREGATES, *NOT_OF_ROWS}
