"""The tables that an SQL text reads: how the inputs of an SQL stream are found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from qod_magics.errors import ApplicationError
from qod_magics.estimate.formulas import WEIGHT

_SPARK = Dialect.get_or_raise("spark")
_STARTS = ("SELECT", "WITH", "FROM", "(")
#: How names of functions begin that estimate.
ESTIMATES = "est_"
#: The rule that a text breaks which the parser does not take for one query.
SYNTAX = "syntax"
#: Aggregate functions of Spark that the parser does not know as such, but for those of sketches.
_AGGREGATES = frozenset(
    ("mean", "std", "try_avg", "try_sum", "any", "some", "every", "collect_union", "histogram_numeric")
)
_UNITS = frozenset(
    unit + plural
    for unit in ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR")
    for plural in ("", "S")
)


def tables_read(sql: str) -> tuple[str, ...]:
    """Names of the tables and views that a Spark SQL query reads, as written, each once (case does not count),
    in order of appearance.

    Left out: names that a WITH of the same text defines (where it is visible: `WITH a AS (SELECT * FROM a) ...` reads
    the outer `a`), local aliases, table-valued functions, and names qualified by a database.

    Raises ApplicationError, with line and column, for text that does not parse as one query.
    """
    read = [table for table in parsed(sql).find_all(exp.Table) if _is_read(table)]
    found: dict[str, str] = {}
    for table in sorted(read, key=lambda table: int(table.this.meta.get("start", 0))):
        found.setdefault(table.name.casefold(), table.name)
    return tuple(found.values())


def formatted(sql: str, stand_ins: Mapping[str, str]) -> str:
    """Return the text as a format in which `{stand_in}` stands for each of these tables that it reads, with the name of
    the table as its alias; other braces are doubled. Raises ApplicationError as `tables_read`."""
    wanted = {name.casefold(): stand_in for name, stand_in in stand_ins.items()}
    read = [each for each in parsed(sql).find_all(exp.Table) if _is_read(each) and each.name.casefold() in wanted]
    made, end = [], 0
    for table in sorted(read, key=lambda each: int(each.this.meta["start"])):
        start = int(table.this.meta["start"])
        alias = "" if table.alias else " AS `{}`".format(table.name.replace("`", "``"))
        made.append(_braced(sql[end:start]) + "{" + wanted[table.name.casefold()] + "}" + _braced(alias))
        end = int(table.this.meta["end"]) + 1
    return "".join([*made, _braced(sql[end:])])


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def aggregates(sql: str) -> bool:
    """Return whether a Spark SQL query groups, aggregates or removes duplicates: as a stream it is stateful. False for
    text that can't be parsed: Spark decides then."""
    try:
        query = parsed(sql)
    except ApplicationError:
        return False
    return query.find(exp.Group, exp.Distinct) is not None or any(map(is_aggregate, query.find_all(exp.Func)))


def is_aggregate(call: exp.Func) -> bool:
    """Return whether a call is of an aggregate function, `est_` ones among them."""
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    return isinstance(call, exp.AggFunc) or name.startswith(ESTIMATES) or name in _AGGREGATES


def _is_read(table: exp.Table) -> bool:
    """False for functions, qualified names, names inside hints, and names that a WITH defines."""
    if not isinstance(table.this, exp.Identifier) or table.args.get("db") is not None:
        return False
    return table.find_ancestor(exp.Hint, exp.JoinHint) is None and not _defined_by_with(table, table.name)


def _defined_by_with(table: exp.Table, name: str) -> bool:
    inner: exp.Expr = table
    outer = inner.parent
    while outer is not None:
        if isinstance(outer, exp.With):
            ahead = outer.expressions[: inner.index]
            visible = [*ahead, inner] if outer.args.get("recursive") else ahead
        else:
            clause = outer.args.get("with_")
            visible = clause.expressions if clause is not None and clause is not inner else []
        if any(common.alias.casefold() == name.casefold() for common in visible):
            return True
        inner, outer = outer, outer.parent
    return False


def tokenized(sql: str) -> list[Token]:
    """The tokens of an SQL text, with their positions in it. Raises ApplicationError, with the line, where it can't be
    read."""
    try:
        return list(_SPARK.tokenize(sql))
    except TokenError as error:
        missing = re.match(r"Missing (.+) from (\d+):(\d+)", str(error.__cause__))
        what = (
            f"line {missing[2]}: a closing {missing[1]} is missing" if missing else "a comment or a quote is left open"
        )
        raise ApplicationError(f"the SQL can't be read: {what}") from error


def parsed(sql: str) -> exp.Query:
    """The syntax tree of an SQL text. Raises ApplicationError, with line and column, for what is no query."""
    tokens = list(_readable(tokenized(sql)))
    if not tokens:
        raise ApplicationError("the SQL is empty: write a query under the magic line, SELECT ... FROM source, say")
    first = tokens[0]
    if first.token_type == TokenType.HASH:
        raise ApplicationError(f"{place(first)}: a comment begins with --, not #")
    if first.text.upper() not in _STARTS:
        raise ApplicationError(f"{place(first)}: a query begins with SELECT, WITH or FROM, not {first.text!r}")
    try:
        read = _SPARK.parser().parse(tokens, sql)
        statements = [each for each in read if each is not None and not isinstance(each, exp.Semicolon)]
    except ParseError as error:
        raise ApplicationError(_explain(error), rule=SYNTAX) from error
    if len(statements) != 1:
        raise ApplicationError(f"a stream is one query; the SQL holds {len(statements)}, separated by ';'")
    if not isinstance(statements[0], exp.Query):
        raise ApplicationError(f"{place(first)}: a SELECT is needed, not {first.text!r}")
    return statements[0]


def _explain(error: ParseError) -> str:
    detail = error.errors[0] if error.errors else {}
    near = str(detail.get("highlight") or "")
    what = str(detail.get("description") or error).splitlines()[0].partition(" for <class")[0].rstrip(".")
    if what.startswith("Required keyword"):
        what = "something is missing"
    column = int(detail.get("col") or 1) - len(near) + 1
    return (
        f"line {detail.get('line', 1)}, column {max(column, 1)} of the SQL: {what[:1].lower() + what[1:]} near "
        f"{near!r}."
    )


def place(token: Token) -> str:
    """Return where a token stands, as errors say it."""
    return f"line {token.line}, column {token.col - (token.end - token.start)} of the SQL"


def _readable(tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens without Spark syntax unknown to the parser: window(...), FROM STREAM a, WATERMARK ... DELAY OF."""
    index = 0
    while index < len(tokens):
        token = tokens[index]
        following = tokens[index + 1].token_type if index + 1 < len(tokens) else None
        before = tokens[index - 1].token_type if index else None
        word = token.text.upper()
        if token.token_type == TokenType.WINDOW and following == TokenType.L_PAREN:
            yield Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end)
        elif (
            word == "STREAM"
            and before in (TokenType.FROM, TokenType.JOIN)
            and following
            in (
                TokenType.VAR,
                TokenType.IDENTIFIER,
                TokenType.L_PAREN,
            )
        ):
            pass
        elif word == "WATERMARK" and token.token_type == TokenType.VAR:
            after = _after_watermark(tokens, index)
            if after is None:
                yield token
            else:
                index = after
                continue
        else:
            yield token
        index += 1


def _after_watermark(tokens: Sequence[Token], start: int) -> int | None:
    """Index after the `WATERMARK expression DELAY OF INTERVAL 5 SECONDS` at `start`; None if there is none."""
    words = [token.text.upper() for token in tokens]
    for index in range(start + 2, len(tokens) - 3):
        if words[index : index + 3] == ["DELAY", "OF", "INTERVAL"]:
            index += 3
            while index + 1 < len(tokens) and words[index + 1] in _UNITS:
                index += 2
            if index + 1 < len(tokens) and words[index] == "TO" and words[index + 1] in _UNITS:
                index += 2
            return index
    return None


# --- Aggregates that `--estimates` turns into estimates ---------------------------------------------------------------


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
        _check_call(sql, call, name)
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
    _check_readers(sql, select, columns, unnamed)
    if not calls:
        raise ApplicationError(f"--estimates: {NONE}")
    return Turned(calls, tuple(columns), bool(unnamed))


def _check_call(sql: str, call: exp.Expr, name: str) -> None:
    """Refuse an aggregate that can't be the estimate of this name."""
    if isinstance(call.this, exp.Distinct):
        if name == "est_count":
            counted = ", ".join(each.sql("spark") for each in call.this.expressions)
            _refuse(sql, call, f"counts different values: write est_count_distinct({counted})")
        _refuse(sql, call, "is of different values, of which a sample tells little: leave --estimates out")
    if any(each.name.lower() == WEIGHT for each in call.find_all(exp.Column)):
        _refuse(sql, call, f"would be weighted twice: write it without {WEIGHT}, or leave --estimates out")


def _check_readers(sql: str, select: exp.Select, columns: Sequence[str], unnamed: Sequence[exp.Expr]) -> None:
    """Refuse clauses that read one of these columns as the number that it is no longer."""
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
