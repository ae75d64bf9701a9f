"""Estimates in an SQL text: what Spark gets in their place, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.application.recipes.recipe import SqlRecipe
from qod_magics.application.sql.estimates import estimated, has_estimates
from qod_magics.application.sql.names import aggregates as aggregates_of
from qod_magics.errors import ApplicationError
from qod_magics.estimate import aggregates, formulas
from qod_magics.estimate.groups import Groups, recipe_over
from qod_magics.estimate.text import ANY, Text, TextFunctions
from tests.raising import breaks


def total(argument: str, level: float = 0.95) -> str:
    return formulas.total(TextFunctions(), Text(argument, ANY).cast("double"), level).sql


COUNT = formulas.count(TextFunctions(), None, 0.95).sql
SUM = total("fare")


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("SELECT est_count(*) FROM t", f"SELECT {COUNT} AS `est_count(*)` FROM t"),
        ("SELECT est_count(*) AS n FROM t", f"SELECT {COUNT} AS n FROM t"),
        ("SELECT EST_Count( * ) n FROM t", f"SELECT {COUNT} n FROM t"),
        ("SELECT `est_count`(*) n FROM t", f"SELECT {COUNT} n FROM t"),
        ("SELECT k, est_sum(fare), 1 FROM t", f"SELECT k, {SUM} AS `est_sum(fare)`, 1 FROM t"),
        ("SELECT est_sum(fare).value / 2 FROM t", f"SELECT {SUM}.value / 2 AS `est_sum(fare).value / 2` FROM t"),
        (
            "SELECT 1, round(2, est_sum(fare).v) FROM t",
            f"SELECT 1, round(2, {SUM}.v) AS `round(2, est_sum(fare).v)` FROM t",
        ),
        ("SELECT est_sum(fare).value v FROM t", f"SELECT {SUM}.value v FROM t"),
        (
            "SELECT est_sum(fare).v IS DISTINCT FROM NULL, 1 FROM t",
            f"SELECT {SUM}.v IS DISTINCT FROM NULL AS `est_sum(fare).v IS DISTINCT FROM NULL`, 1 FROM t",
        ),
        ("SELECT est_sum(a\n -- b\n + c) AS s FROM t", "SELECT " + total("a\n -- b\n + c") + " AS s FROM t"),
        ("SELECT est_sum(fare, level => 0.8) s FROM t", f"SELECT {total('fare', 0.8)} s FROM t"),
        (
            "SELECT est_sum(fare) FILTER (WHERE k > 1) s FROM t",
            f"SELECT {total('CASE WHEN k > 1 THEN fare END')} s FROM t",
        ),
        ("FROM t |> AGGREGATE est_count(*) GROUP BY k", f"FROM t |> AGGREGATE {COUNT} AS `est_count(*)` GROUP BY k"),
        (
            "SELECT k FROM t GROUP BY k HAVING est_count(*).value > 2",
            f"SELECT k FROM t GROUP BY k HAVING {COUNT}.value > 2",
        ),
        ("SELECT x FROM (SELECT est_count(*) FROM t)", f"SELECT x FROM (SELECT {COUNT} AS `est_count(*)` FROM t)"),
        (
            "SELECT est_count(*) n FROM t WATERMARK at DELAY OF INTERVAL 5 SECONDS GROUP BY window(at, '1 minute')",
            f"SELECT {COUNT} n FROM t WATERMARK at DELAY OF INTERVAL 5 SECONDS GROUP BY window(at, '1 minute')",
        ),
        ("SELECT est_count(*) n FROM t SPARK MAY LEARN (((", f"SELECT {COUNT} n FROM t SPARK MAY LEARN ((("),
    ],
)
def test_what_spark_gets(sql: str, shown: str) -> None:
    assert estimated(sql) == shown
    assert has_estimates(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'est_count(*)', \"est_sum(x)\" FROM t -- est_sum(",
        "SELECT est_count, my.est_sum(x), t.`est_sum` FROM t",
        "SELECT count(*) FROM t",
        "SELECT 'left open",
    ],
)
def test_other_text_stays(sql: str) -> None:
    assert estimated(sql) == sql if "open" not in sql else not has_estimates(sql)


@given(st.text(st.characters(exclude_characters="'\\", exclude_categories=["Cs", "Cc"]), max_size=20))
def test_positions_hold_behind_any_letters(letters: str) -> None:
    assert estimated(f"SELECT '{letters}', est_count(*) AS n FROM t") == f"SELECT '{letters}', {COUNT} AS n FROM t"


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            "SELECT 1,\n  est_cnt(*) FROM t",
            "line 2, column 3",
        ),
        ("SELECT est_sum(a, b) FROM t", "line 1, column 8"),
        ("SELECT est_sum() FROM t", "est_sum(fare)"),
        ("SELECT est_sum(a, 0.9) FROM t", "level => 0.9"),
        (
            "SELECT est_quantile(a) FROM t",
            "est_quantile(fare, 0.9)",
        ),
        ("SELECT est_sum(*) FROM t", "column 16"),
        ("SELECT est_sum(a, level => 95) FROM t", "column 28"),
        ("SELECT est_sum(a, level => x) FROM t", "column 28"),
        ("SELECT est_sum(a, level => ) FROM t", "level"),
        ("SELECT est_sum(a, levl => 0.9) FROM t", "'level'"),
        ("SELECT est_sum(level => 0.9, a) FROM t", "level"),
        ("SELECT est_quantile(a, 90) FROM t", "column 24"),
        ("SELECT est_quantile(a, b) FROM t", "not b"),
        ("SELECT est_sum(est_avg(a).value) FROM t", "est_avg"),
        ("SELECT est_sum(DISTINCT a) FROM t", "column 16"),
        ("SELECT est_count(DISTINCT a) FROM t", "est_count_distinct(user)"),
        ("SELECT est_count_distinct(DISTINCT a) FROM t", "column 27"),
        (
            "SELECT est_count_distinct() FROM t",
            "level => 0.9",
        ),
        ("SELECT est_count_distinct(*) FROM t", "est_count_distinct(user)"),
        ("SELECT est_sum(a) OVER (PARTITION BY k) FROM t", "OVER"),
        ("SELECT k FROM t WHERE est_count(*).value > 1", "column 23"),
        ("SELECT 2 * est_sum(a) FROM t", "column 12"),
        ("SELECT sum(est_sum(a).value) FROM t", "column 12"),
        ("SELECT est_sum(a FROM t", "column 15"),
    ],
)
def test_what_is_refused_in_one_line(sql: str, says: str) -> None:
    with pytest.raises(ApplicationError) as caught:
        estimated(sql)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def counted(*columns: str, key: tuple[str, ...] = ()) -> str:
    f = TextFunctions()
    hashed = f.xxhash64(*map(f.col, key)) if key else None
    return aggregates.distinct(f, [written(each) for each in columns], 0.95, True, hashed).sql


def written(column: str) -> Text:
    return Text(column) if column.strip("`").isidentifier() or column.startswith("CASE") else Text(column, ANY)


@pytest.mark.parametrize(
    ("counted", "shown"),
    [
        ("user", counted("user")),
        ("t.user", counted("t.user")),
        ("`User`", counted("`User`")),
        ("zone, user", counted("zone", "user", key=("user",))),
        ("user) FILTER (WHERE k > 1", counted("CASE WHEN k > 1 THEN user END")),
    ],
)
def test_values_are_counted_by_the_key_that_their_topic_is_shed_by(counted: str, shown: str) -> None:
    with recipe_over([("user",)]):
        assert estimated(f"SELECT est_count_distinct({counted}) n FROM t") == f"SELECT {shown} n FROM t"


@pytest.mark.parametrize("counted", ["zone", "upper(user)", "a.user", "t.user.name", "user || ''"])
def test_others_only_while_no_row_is_dropped(counted: str) -> None:
    """What is computed, and a field of a struct, may be the same for several keys."""
    while_exact = aggregates.distinct(TextFunctions(), [written(counted)], 0.95).sql
    with recipe_over([("user",)]):
        assert estimated(f"SELECT est_count_distinct({counted}) n FROM t") == f"SELECT {while_exact} n FROM t"
    assert estimated(f"SELECT est_count_distinct({counted}) n FROM t") == f"SELECT {while_exact} n FROM t"


@pytest.mark.parametrize(
    "name", ["date", "session", "uuid", "index", "time", "Timestamp", "json", "file", "partition", "window", "rows"]
)
def test_words_of_spark_name_columns_too(name: str) -> None:
    with recipe_over([(name.lower(),)]):
        for column in (name, f"t.{name}"):
            shown = f"SELECT {counted(column)} n FROM t"
            assert estimated(f"SELECT est_count_distinct({column}) n FROM t") == shown
    of_groups = Groups(frozenset({name}), shared=False)
    shown = f"SELECT {aggregates.chained_total(TextFunctions(), Text(name), 0.95, False)} n FROM t"
    with recipe_over([None], of_groups):
        assert estimated(f"SELECT est_sum({name}) n FROM t") == shown


@pytest.mark.parametrize("value", ["NULL", "TRUE", "false", "7", "'user'", "x'ab'", "r'ab'", "INTERVAL '1' DAY"])
def test_values_name_no_columns(value: str) -> None:
    names = [(name,) for name in ("null", "true", "false", "7", "user", "ab", "interval")]
    text = Text(value, ANY) if " " in value else Text(value)
    while_exact = aggregates.distinct(TextFunctions(), [text], 0.95)
    for key in names:
        with recipe_over([key]):
            assert estimated(f"SELECT est_count_distinct({value}) n FROM t") == f"SELECT {while_exact.sql} n FROM t"


def test_values_of_a_stream_without_its_key_are_refused() -> None:
    with recipe_over([()]), pytest.raises(ApplicationError, check=breaks("keeps the key")):
        estimated("SELECT est_count_distinct(user) n FROM t")


@pytest.mark.parametrize("sql", ["SELECT est_count(*) FROM t", "SELECT mean(x) FROM t", "SELECT try_sum(x) FROM t"])
def test_they_and_other_aggregates_that_the_parser_does_not_know_keep_state(sql: str) -> None:
    assert aggregates_of(sql)
    assert SqlRecipe(sql).aggregates


def test_a_recipe_reads_the_weight_by_name_or_by_an_estimate() -> None:
    assert SqlRecipe("SELECT est_count(*) FROM t").weighs
    assert SqlRecipe("SELECT sum(_weight) FROM t").weighs
    assert not SqlRecipe("SELECT count(*) FROM t").weighs
    assert SqlRecipe("SELECT est_count(*) FROM t").names == {"t"}
