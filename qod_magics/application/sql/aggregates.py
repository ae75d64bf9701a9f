"""Plain aggregates of an SQL text that `--estimates` makes estimates of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp

from qod_magics.application.sql.names import ESTIMATES, is_aggregate, parsed
from qod_magics.errors import ApplicationError
from qod_magics.estimate.formulas import WEIGHT


@dataclass(frozen=True, slots=True)
class Turned:
    """The aggregates of a text that are to be estimates."""

    calls: dict[int, str]  #: the name of the estimate, by the position of the call in the text
    columns: tuple[str, ...]  #: their columns, by name or as they are written
    unnamed: bool  #: whether some of them are columns of the result that have the names that Spark gives


def turned(sql: str) -> Turned:
    """The columns of the outermost SELECT that aggregates that are counts, sums and averages.

    Raises ApplicationError, with line and column, if there are none, or if there are aggregates that can't be turned.
    """
    query = parsed(sql)
    select = _outermost(query)
    calls: dict[int, str] = {}
    columns: list[str] = []
    unnamed: list[exp.Expr] = []
    for column in select.expressions:
        inner = column.unalias()
        call = inner.this if isinstance(inner, exp.Filter) else inner
        name = _estimate(call)
        if name is None:
            _refuse_aggregates(sql, column)
            continue
        if isinstance(call.this, exp.Distinct):
            if name == "est_count":
                counted = ", ".join(each.sql("spark") for each in call.this.expressions)
                _refuse(sql, call, f"counts different values: write est_count_distinct({counted})")
            _refuse(sql, call, "is of different values, of which a sample tells little: leave --estimates out")
        if any(each.name.lower() == WEIGHT for each in call.find_all(exp.Column)):
            _refuse(sql, call, f"would be weighted twice: write it without {WEIGHT}, or leave --estimates out")
        calls[int(call.meta["start"])] = name
        if isinstance(column, exp.Alias):
            columns.append(column.alias)
        elif select is not query:
            _refuse(sql, call, "needs a name, by which the SELECT around it can read it: add AS")
        else:
            columns.append(inner.sql("spark").lower())
            unnamed.append(call)
    for clause in (each for each in select.args.values() if isinstance(each, exp.Expr)):
        if not isinstance(clause, exp.With | exp.From):
            _refuse_aggregates(sql, clause)
    having = select.args.get("having")
    for read in having.find_all(exp.Column) if having is not None else ():
        if not read.table and read.name in columns and not isinstance(read.parent, exp.Dot):
            _refuse(sql, read.this, f"is a struct of value, low and high now: write {read.name}.value")
    names = {name.casefold() for name in columns}
    for key, words in (("having", "HAVING"), ("order", "ORDER BY")) if unnamed else ():
        part = select.args.get(key)
        for read in part.find_all(exp.Column) if part is not None else ():
            if read.table.casefold() in names:  # in the text that Spark names columns by, these have no fields
                _refuse(sql, unnamed[0], f"needs a name, as {words} reads {read.sql('spark')}: add AS")
    if not calls:
        raise ApplicationError(f"--estimates: {NONE}")
    return Turned(calls, tuple(columns), bool(unnamed))


NONE = "the SQL has no count, sum or avg as a column of its own that could be an estimate: leave it out"


def _outermost(query: exp.Query) -> exp.Select:
    aggregating = [select for select in query.find_all(exp.Select) if _aggregates(select)]
    outermost = [each for each in aggregating if not any(_is_in(each, other) for other in aggregating)]
    if not outermost:
        raise ApplicationError(f"--estimates: {NONE}")
    if len(outermost) > 1:
        raise ApplicationError(
            f"--estimates is about one SELECT that aggregates, and the SQL has {len(outermost)} side by side: leave it "
            "out, and write est_count(*), est_sum(...) or est_avg(...) where they are meant"
        )
    return outermost[0]


def _is_in(select: exp.Expr, other: exp.Expr) -> bool:
    around = select.parent
    while around is not None and around is not other:
        around = around.parent
    return around is not None


def _aggregates(select: exp.Select) -> bool:
    return select.args.get("group") is not None or next(_own_aggregates(select), None) is not None


def _own_aggregates(node: exp.Expr) -> Iterator[exp.Func]:
    """The aggregates in a node, without those of queries within it."""
    for each in node.walk(prune=lambda inner: isinstance(inner, exp.Query) and inner is not node):
        if isinstance(each, exp.Func) and is_aggregate(each):
            yield each


def _estimate(call: exp.Expr) -> str | None:
    """The estimate that a call would be; None for all else."""
    if isinstance(call, exp.Count):
        return "est_count"
    if isinstance(call, exp.Sum):
        return "est_sum"
    mean = isinstance(call, exp.Anonymous) and call.name.lower() == "mean"
    return "est_avg" if mean or isinstance(call, exp.Avg) else None


def _refuse_aggregates(sql: str, node: exp.Expr) -> None:
    """ApplicationError for aggregates in a part of the SELECT that can't be turned."""
    for call in _own_aggregates(node):
        if isinstance(call, exp.Anonymous) and call.name.lower().startswith(ESTIMATES):
            continue
        estimate = _estimate(call)
        if isinstance(call.parent, exp.Window) or isinstance(getattr(call.parent, "parent", None), exp.Window):
            _refuse(sql, call, "is of a window with OVER, not of a group: leave --estimates out")
        if estimate is not None:
            _refuse(sql, call, f"is no column of its own: write {estimate}(...).value there")
        if isinstance(call, exp.Quantile | exp.ApproxQuantile | exp.Median | exp.PercentileCont):
            _refuse(sql, call, "is not turned by --estimates: write est_quantile(fare, 0.9)")
        _refuse(
            sql,
            call,
            "has no estimate: leave --estimates out, and write est_count(*), est_sum(...) or est_avg(...) beside it",
        )


def _refuse(sql: str, what: exp.Expr, why: str) -> NoReturn:
    placed = next((each for each in what.walk() if "start" in each.meta), None)
    if placed is None:
        raise ApplicationError(f"--estimates: {what.sql('spark')} {why}")
    start = int(placed.meta["start"])
    line, column = sql.count("\n", 0, start) + 1, start - sql.rfind("\n", 0, start)
    raise ApplicationError(f"line {line}, column {column} of the SQL: {' '.join(what.sql('spark').split())} {why}")
