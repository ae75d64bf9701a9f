"""Plain aggregates that `--estimates` turns into estimates, and what it refuses."""

from __future__ import annotations

import pytest

from qod_magics.application.recipes.recipe import SqlRecipe
from qod_magics.application.sql.estimates import estimated
from qod_magics.application.sql.names import turned
from qod_magics.errors import ApplicationError


@pytest.mark.parametrize(
    ("sql", "columns", "unnamed", "same"),
    [
        (
            "SELECT zone, count(*), sum(fare) AS total, mean(x), est_sum(y) AS s FROM t GROUP BY zone",
            ("count(*)", "total", "mean(x)"),
            True,
            "SELECT zone, est_count(*) AS `A`, est_sum(fare) AS total, est_avg(x) AS `A`, est_sum(y) AS s FROM t "
            "GROUP BY zone",
        ),
        (
            "SELECT n FROM (SELECT count(x) FILTER (WHERE y) AS n FROM t GROUP BY window(at, '1 minute'))",
            ("n",),
            False,
            "SELECT n FROM (SELECT est_count(x) FILTER (WHERE y) AS n FROM t GROUP BY window(at, '1 minute'))",
        ),
        (
            "WITH a AS (SELECT * FROM t) SELECT avg(x) m FROM a",
            ("m",),
            False,
            "WITH a AS (SELECT * FROM t) SELECT est_avg(x) m FROM a",
        ),
        (
            "FROM t |> AGGREGATE count(*) AS n GROUP BY k",
            ("n",),
            False,
            "FROM t |> AGGREGATE est_count(*) AS n GROUP BY k",
        ),
        (
            "SELECT count(*) n FROM t GROUP BY z HAVING n.value > 1",
            ("n",),
            False,
            "SELECT est_count(*) n FROM t GROUP BY z HAVING n.value > 1",
        ),
    ],
)
def test_counts_sums_and_averages_become_estimates(
    sql: str, columns: tuple[str, ...], unnamed: bool, same: str
) -> None:
    found = turned(sql)
    assert (found.columns, found.unnamed) == (columns, unnamed)
    assert estimated(sql, found.calls) == estimated(same).replace(" AS `A`", "")
    assert SqlRecipe(sql, estimates=True) != SqlRecipe(sql)
    assert SqlRecipe(sql, estimates=True).weighs


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            "SELECT zone,\n count(*) / 2 FROM t",
            "line 2, column 2",
        ),
        ("SELECT count(*) n, mean(x) + 1 FROM t", "est_avg(...).value"),
        ("SELECT count(DISTINCT x, y) FROM t", "est_count_distinct(x, y)"),
        ("SELECT sum(DISTINCT x) FROM t", "SUM(DISTINCT x)"),
        ("SELECT count(*), max(x) FROM t", "column 18"),
        ("SELECT count(*), try_sum(x) FROM t", "TRY_SUM(x)"),
        ("SELECT percentile(x, 0.9) FROM t", "est_quantile(fare, 0.9)"),
        ("SELECT median(x) FROM t", "est_quantile(fare, 0.9)"),
        ("SELECT sum(x) OVER (PARTITION BY z) FROM t", "OVER"),
        ("SELECT sum(x) FILTER (WHERE y) OVER (PARTITION BY z) FROM t", "OVER"),
        ("SELECT sum(_weight) AS n FROM t", "_weight"),
        (
            "SELECT count(*) n FROM t GROUP BY z HAVING count(*) > 1",
            "column 44",
        ),
        (
            "SELECT count(*) n FROM t GROUP BY z HAVING n > 1",
            "column 44",
        ),
        ("SELECT count(*) n FROM t ORDER BY sum(x)", "est_sum(...).value"),
        (
            "SELECT z, count(*), sum(x) AS total FROM t GROUP BY z HAVING total.value > 1",
            "HAVING reads total.value",
        ),
        (
            "SELECT count(*), sum(x) AS total FROM t ORDER BY Total.value",
            "ORDER BY reads Total.value",
        ),
        ("SELECT n FROM (SELECT count(*) FROM t)", "add AS"),
        ("SELECT count(*) FROM t UNION ALL SELECT count(*) FROM u", "2"),
        ("SELECT zone FROM t", "count, sum"),
        ("SELECT zone FROM t GROUP BY zone", "count, sum"),
    ],
)
def test_what_can_not_be_turned_is_refused_in_one_line(sql: str, says: str) -> None:
    with pytest.raises(ApplicationError) as caught:
        turned(sql)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
