"""Tables that a Spark SQL text reads."""

from __future__ import annotations

import pytest

from qod_magics.application.sql.names import aggregates, tables_read
from qod_magics.errors import ApplicationError


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("SELECT * FROM a", "a"),
        ("select t.x from a t join b as u using (k)", "a b"),
        ("SELECT * FROM b UNION ALL (SELECT * FROM a) ORDER BY 1", "b a"),
        ("SELECT * FROM a WHERE k IN (SELECT k FROM b) AND EXISTS (SELECT 1 FROM c WHERE c.x = a.x)", "a b c"),
        ("SELECT (SELECT max(x) FROM b) FROM a", "b a"),
        ("SELECT * FROM (SELECT * FROM a) s, LATERAL explode(s.xs) AS t(x)", "a"),
        ("SELECT * FROM a LATERAL VIEW explode(a.xs) t AS x", "a"),
        ("SELECT * FROM a, range(10) r", "a"),
        ("SELECT * FROM `odd name` JOIN a", "odd name|a"),
        ("SELECT * FROM a JOIN A JOIN a AS again", "a"),
        ("SELECT * FROM db.a, json.`/tmp/x`, b", "b"),
        ("WITH c AS (SELECT * FROM a), d AS (SELECT * FROM c) SELECT * FROM d JOIN b", "a b"),
        ("WITH a AS (SELECT * FROM a WHERE x > 1) SELECT * FROM a", "a"),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT * FROM r JOIN a", "a"),
        ("SELECT * FROM (WITH b AS (SELECT * FROM a) SELECT * FROM b) JOIN b", "a b"),
        ("SELECT /*+ BROADCAST(z) */ * FROM a z", "a"),
        ("SELECT k, window.start, count(*) FROM a GROUP BY k, window(at, '10 seconds', '5 seconds')", "a"),
        ("SELECT k, count(*) FROM a GROUP BY k, session_window(at, '5 minutes')", "a"),
        ("SELECT sum(x) OVER w FROM a WINDOW w AS (PARTITION BY k)", "a"),
        ("SELECT * FROM a WATERMARK at DELAY OF INTERVAL 5 SECONDS", "a"),
        ("SELECT * FROM a WATERMARK to_timestamp(t) AS at DELAY OF INTERVAL 1 MINUTE 5 SECONDS x JOIN b", "a b"),
        ("SELECT * FROM STREAM a JOIN STREAM(b)", "a b"),
        ("FROM a |> WHERE x > 1 |> SELECT x", "a"),
        ("FROM a SELECT x", "a"),
        ("SELECT from_json(value, 'a INT').a, x::INT, transform(xs, x -> x + 1) FROM source;", "source"),
        ("-- the busy zones\nSELECT * /* all */ FROM a -- done", "a"),
        ("SELECT 1", ""),
    ],
)
def test_tables_read(sql: str, read: str) -> None:
    assert tables_read(sql) == tuple(read.split("|") if "|" in read else read.split())


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT *\nFROM a\nWHERE (x = 1", "line 3, column 12"),
        ("SELECT * FROM a WHERE (", "line 1, column 23"),
        ("SELEC * FROM a", "line 1, column 1 of the SQL: a query begins with SELECT"),
        ("INSERT INTO b SELECT * FROM a", "not 'INSERT'"),
        ("SELECT 1;\nSELECT 2", "one query"),
        ("SELECT 1,\n  'x FROM a", "line 2: a closing ' is missing"),
        ("SELECT /* x", "left open"),
        ("", "empty"),
        ("-- nothing yet", "empty"),
    ],
)
def test_what_can_not_be_read_is_said_in_one_line(sql: str, says: str) -> None:
    with pytest.raises(ApplicationError) as caught:
        tables_read(sql)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "keeps"),
    [
        ("SELECT *, ratio / 2 AS half FROM drives WHERE id IS NOT NULL", False),
        ("SELECT window(at, '10 seconds') AS w, zone, sum(_weight) AS trips FROM trips GROUP BY 1, 2", True),
        ("SELECT DISTINCT zone FROM trips", True),
        ("SELECT count(*) FROM trips", True),
        ("SELEC nonsense", False),
    ],
)
def test_an_aggregation_is_found_in_the_text(sql: str, keeps: bool) -> None:
    assert aggregates(sql) == keeps
