"""Spark's columns and functions as SQL text, as far as the formulas of estimates need them. Pure.

`TextFunctions` stands for pyspark.sql.functions, and `Text` for its columns: the same operators and methods, and what
results is the text of the same expression.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Number: TypeAlias = "int | float"
Operand: TypeAlias = "Text | int | float | str"

#: How strongly operators bind; ANY is what may hold any of them, and ATOM what holds none that is open.
ANY, AND, COMPARISON, SUM, PRODUCT, ATOM = range(6)


class Text:
    """A Spark SQL expression. Parentheses are set only where they are needed: Spark's parser reads on to the end of
    each of them before it knows what it is, and within it again.

    Attributes:
        sql: the text.
        binding: how strongly its outermost operator binds.

    """

    __hash__ = None  # type: ignore[assignment]  # == makes a comparison, as that of a column does

    def __init__(self, sql: str, binding: int = ATOM) -> None:
        self.sql = sql
        self.binding = binding

    def __repr__(self) -> str:
        return self.sql

    def __add__(self, other: Operand) -> Text:
        return _joined(self, "+", other, SUM)

    def __radd__(self, other: Operand) -> Text:
        return _joined(other, "+", self, SUM)

    def __sub__(self, other: Operand) -> Text:
        return _joined(self, "-", other, SUM)

    def __rsub__(self, other: Operand) -> Text:
        return _joined(other, "-", self, SUM)

    def __mul__(self, other: Operand) -> Text:
        return _joined(self, "*", other, PRODUCT)

    def __rmul__(self, other: Operand) -> Text:
        return _joined(other, "*", self, PRODUCT)

    def __truediv__(self, other: Operand) -> Text:
        return _joined(self, "/", other, PRODUCT)

    def __rtruediv__(self, other: Operand) -> Text:
        return _joined(other, "/", self, PRODUCT)

    def __lt__(self, other: Operand) -> Text:
        return _joined(self, "<", other, COMPARISON)

    def __le__(self, other: Operand) -> Text:
        return _joined(self, "<=", other, COMPARISON)

    def __gt__(self, other: Operand) -> Text:
        return _joined(self, ">", other, COMPARISON)

    def __ge__(self, other: Operand) -> Text:
        return _joined(self, ">=", other, COMPARISON)

    def __eq__(self, other: object) -> Text:  # type: ignore[override]  # as Column's
        assert isinstance(other, Text | int | float)
        return _joined(self, "=", other, COMPARISON)

    def __ne__(self, other: object) -> Text:  # type: ignore[override]  # as Column's
        assert isinstance(other, Text | int | float)
        return _joined(self, "<>", other, COMPARISON)

    def __and__(self, other: Text) -> Text:
        return _joined(self, "AND", other, AND)

    def __getitem__(self, field: str) -> Text:
        return Text(f"{_within(self, ATOM)}.{field}")

    def isNull(self) -> Text:
        """Return whether it is null."""
        return Text(f"{_within(self, SUM)} IS NULL", COMPARISON)

    def isNotNull(self) -> Text:
        """Return whether it is not null."""
        return Text(f"{_within(self, SUM)} IS NOT NULL", COMPARISON)

    def cast(self, kind: str) -> Text:
        """Return the value as another type."""
        return Text(f"CAST({self.sql} AS {kind})")

    def alias(self, name: str) -> Text:
        """Under another name, which must be a word: only as a field of a struct."""
        return Text(f"{self.sql} AS {name}", ANY)


class Case(Text):
    """CASE WHEN ... END, to which further branches can be added."""

    def __init__(self, branches: str) -> None:
        super().__init__(f"CASE{branches} END")
        self._branches = branches

    def when(self, condition: Text, value: Operand) -> Case:
        """Return the CASE with another branch."""
        return Case(f"{self._branches} WHEN {condition.sql} THEN {_operand(value)}")

    def otherwise(self, value: Operand) -> Text:
        """Return the CASE with the value that it has if no branch applies."""
        return Text(f"CASE{self._branches} ELSE {_operand(value)} END")


def _operand(value: Operand) -> str:
    if isinstance(value, Text):
        return value.sql
    if isinstance(value, str):
        return f"'{value}'"
    return f"{value!r}D" if isinstance(value, float) else str(value)


def _within(value: Operand, least: int) -> str:
    """Return the text as an operand of an operator, in parentheses if it binds less strongly than `least`."""
    text = _operand(value)
    return f"({text})" if isinstance(value, Text) and value.binding < least else text


def _joined(left: Operand, operator: str, right: Operand, binding: int) -> Text:
    # operators of one strength are read from the left; comparisons are not read together
    first = binding + 1 if binding == COMPARISON else binding
    return Text(f"{_within(left, first)} {operator} {_within(right, binding + 1)}", binding)


class TextFunctions:
    """The functions, of texts and numbers, for one expression."""

    def __init__(self) -> None:
        self._variables = 0  #: of lambdas so far

    def transform(self, array: Text, body: Callable[[Text], Text]) -> Text:
        """Return a lambda, `body`, of each element. Its variable has a name that no other one of the expression has."""
        self._variables += 1
        variable = f"v{self._variables}"
        return Text(f"transform({array.sql}, {variable} -> {body(Text(variable)).sql})")

    def aggregate(self, array: Text, start: Text, merge: Callable[[Text, Text], Text]) -> Text:
        """Return a fold by a lambda, `merge`, of the result so far and an element."""
        self._variables += 2
        so_far, element = f"v{self._variables - 1}", f"v{self._variables}"
        merged = merge(Text(so_far), Text(element)).sql
        return Text(f"aggregate({array.sql}, {start.sql}, ({so_far}, {element}) -> {merged})")

    def col(self, name: str) -> Text:
        """Return a column."""
        return Text(name if name.isidentifier() else "`{}`".format(name.replace("`", "``")))

    def lit(self, value: Number | str) -> Text:
        """Return a number or a text without quotes: a float is a DOUBLE, not the DECIMAL that SQL makes of one."""
        return Text(_operand(value))

    def when(self, condition: Text, value: Operand) -> Case:
        """Return the beginning of a CASE."""
        return Case("").when(condition, value)

    def __getattr__(self, name: str) -> Callable[..., Text]:
        return lambda *given: Text(f"{name}({', '.join(map(_operand, given))})")
