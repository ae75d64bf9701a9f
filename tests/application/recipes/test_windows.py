"""Windows of time in recipes: both languages, both forms, and texts that only look like one."""

from __future__ import annotations

import pytest

from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.recipes.recipe import SqlRecipe
from qod_magics.simulator.messages.declared import window_of


@pytest.mark.parametrize(
    ("sql", "window"),
    [
        ("SELECT window(ts, '10 seconds') w, count(*) FROM a GROUP BY window(ts, '10 seconds')", (10, 10)),
        ('SELECT count(*) FROM a GROUP BY WINDOW(ts, "1 minute", "30 seconds"), zone', (60, 30)),
        ("SELECT count(*) FROM a GROUP BY window(ts, 'interval 500 milliseconds')", (0.5, 0.5)),
        ("SELECT sum(x) OVER (PARTITION BY y) FROM a", None),
        ("SELECT 1 FROM a -- GROUP BY window(ts, '10 seconds')", None),
        ("SELECT count(*) FROM a GROUP BY window(ts, 'ten seconds')", None),
    ],
)
def test_windows_of_sql(sql: str, window: tuple[float, float] | None) -> None:
    assert window_of(SqlRecipe(sql)) == window


@pytest.mark.parametrize(
    ("source", "window"),
    [
        ("a.groupBy(F.window('ts', '10 seconds'), 'zone').count()", (10, 10)),
        ("a.groupBy(F.window(a.ts, '1 hour', '5 minutes')).count()", (3600, 300)),
        ("a.groupBy(F.window('ts', windowDuration='2 minutes', slideDuration='1 minute')).count()", (120, 60)),
        ("length = '10 seconds'\na.groupBy(F.window('ts', length)).count()", None),
        ("a.withColumn('x', F.lit(\"window(ts, '10 seconds')\"))", None),
    ],
)
def test_windows_of_python(source: str, window: tuple[float, float] | None) -> None:
    assert window_of(PythonRecipe(source)) == window
