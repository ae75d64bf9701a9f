"""SQL text of expressions: it says what the expression says. (That Spark agrees: tests/live/test_estimates.py.)"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.estimate import formulas
from qod_magics.estimate.aggregates import distinct
from qod_magics.estimate.text import ANY, Text, TextFunctions

OPERATORS: list[Callable[[Any, Any], Any]] = [operator.add, operator.sub, operator.mul, operator.truediv]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> tuple[Any, float]:
    """An expression, as a text or a number, and its value."""
    if depth == 0 or draw(st.booleans()):
        number = draw(st.floats(0.1, 9.0))
        return (number, number) if draw(st.booleans()) else (TextFunctions().lit(number), number)
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    combine = draw(st.sampled_from(OPERATORS))
    try:
        return combine(left[0], right[0]), combine(left[1], right[1])
    except ZeroDivisionError:
        return left


@given(expressions())
def test_parentheses_stand_where_they_are_needed(drawn: tuple[Any, float]) -> None:
    written, value = drawn
    sql = written.sql.replace("D", "") if isinstance(written, Text) else repr(written)
    try:
        assert eval(sql) == pytest.approx(value, nan_ok=True)  # Python binds as SQL does here
    except ZeroDivisionError:
        assert math.isinf(value) or math.isnan(value)


def test_texts_of_all_that_the_formulas_use() -> None:
    f = TextFunctions()
    x = Text("a OR b", ANY)
    assert x.isNotNull().sql == "(a OR b) IS NOT NULL"
    assert (x.isNull() & (f.col("c") == 0)).sql == "(a OR b) IS NULL AND c = 0"
    assert x.cast("double").sql == "CAST(a OR b AS double)"
    assert f.when(x.isNull(), 1.0).when(f.col("c") != 2, 2).otherwise(f.lit(1e-05)).sql == (
        "CASE WHEN (a OR b) IS NULL THEN 1.0D WHEN c <> 2 THEN 2 ELSE 1e-05D END"
    )
    assert f.transform(f.array(x), lambda v: f.transform(f.array(v["y"]), lambda u: u + v["y"])).sql == (
        "transform(array(a OR b), v1 -> transform(array(v1.y), v2 -> v2 + v1.y))"
    )


def test_estimates_nest_little() -> None:
    """Spark's parser has a stack of its server's: it overflowed on expressions written out."""
    f, x = TextFunctions(), Text("fare").cast("double")
    for made in (
        formulas.count(f, None, 0.95),
        formulas.total(f, x, 0.95),
        formulas.ratio(f, x, x, 0.95),
        formulas.quantile(f, x, 0.9, 0.95),
        distinct(f, [x], 0.95),
        distinct(f, [x, f.col("user")], 0.95, whole=True, key=f.xxhash64(f.col("user"))),
    ):
        depth = deepest = 0
        for letter in made.sql:
            depth += (letter == "(") - (letter == ")")
            deepest = max(deepest, depth)
        assert depth == 0
        assert deepest <= 16
        assert len(made.sql) < 10_000
