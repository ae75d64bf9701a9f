"""How an SQL query over a table is split: one query for each part of the rows, and one that merges their results. Pure.

Parts and merge are queries of Spark's. What splits is listed here, and all else is answered over the whole table:

- rows: SELECT of expressions, with WHERE, DISTINCT, ORDER BY columns of the result, LIMIT and OFFSET
- groups: GROUP BY, HAVING, ORDER BY, LIMIT, OFFSET, with `count`, `sum`, `min`, `max`, `avg`, each also with FILTER,
  and expressions of these and of the keys

Other aggregates, DISTINCT within one, joins, subqueries, windows with OVER, and functions that are not known to give a
value for each row (`functions.OF_ROWS`) are not split. The present time is the same in all parts: `:qod_now`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from qod_magics.application.sql.functions import OF_ROWS, called
from qod_magics.application.sql.names import is_aggregate, parsed, tokenized

#: Stands for the table in the text of a part, and for the results of all parts in that of the merge.
ROWS, PARTS = "__qod_rows__", "__qod_parts__"
#: The parameter that holds the present time.
NOW = "qod_now"
#: Clauses of a SELECT that may be there.
_CLAUSES = frozenset(
    ("expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct", "operation_modifiers")
)
#: What has another value in each part, or for each row.
_UNSTEADY = (exp.CurrentDate, exp.CurrentTime, exp.CurrentUser, exp.Localtime, exp.Localtimestamp, exp.SessionUser)
#: Literals of dates and times whose value is that of a cast of their text. "today" has none, and "12:00" is of today.
_DATED = re.compile(r"\s*\d{4}")
#: The functions that split: those of rows, aggregates, and the present time.
_SPLIT = OF_ROWS | {"count", "sum", "min", "max", "avg", "now", "current_timestamp"}
_OPERATORS: Mapping[type[exp.Expr], str] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


class NotSplit(Exception):
    """Says why a query is answered over the whole table, as a clause."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A condition that all rows of the result meet: a column compared with a constant."""

    column: str  #: with the fields of structs, such as "w.start", in lower case
    operator: str  #: <, <=, >, >= or =
    value: str  #: SQL


@dataclass(frozen=True, slots=True)
class Split:
    """A query as parts and merge. Texts name the table `ROWS` and the results of the parts `PARTS`."""

    whole: str  #: the query as it was understood, over `ROWS`
    part: str
    probe: str  #: as `part`, with columns `_a0`, `_a1` behind it, whose types must be double: of these averages split
    merge: Callable[[Mapping[str, str]], str]  #: of the types of the part's columns; result columns are `_0`, `_1`...
    columns: int  #: of the result
    bounds: tuple[Bound, ...] = ()


def split(sql: str, table: str, columns: Sequence[str]) -> Split:
    """Return the parts and the merge of a query.

    Args:
        sql: one SELECT.
        table: its name in the query.
        columns: the names of its columns.

    Raises:
        NotSplit: it can only be answered over the whole table.
        ApplicationError: the text is no query.

    """
    query = parsed(sql)
    for name in sorted(called(sql) - _SPLIT):
        raise NotSplit(f"{name} is not known to give one value for each row")
    return _Reader(query, table, columns).split()


def as_parsed(sql: str) -> str:
    """Return a text as `Split.whole` writes it, so that Spark finds both equal: literals of dates and times that begin
    with a year as casts of text, which have the same value, and the unit of date_trunc in capitals. Other literals
    stay: Spark finds that the texts differ."""
    tokens, made, end = tokenized(sql), [], 0
    for index, token in enumerate(tokens):
        if token.token_type != TokenType.STRING:
            continue
        written = sql[token.start : token.end + 1]
        before = [each.text.upper() for each in tokens[max(index - 2, 0) : index]]
        if before[-1:] in (["DATE"], ["TIMESTAMP"]) and _DATED.match(token.text):
            start, text = tokens[index - 1].start, f"CAST({written} AS {before[-1]})"
        elif before == ["DATE_TRUNC", "("]:
            start, text = token.start, written.upper()
        else:
            continue
        made.append(sql[end:start] + text)
        end = token.end + 1
    return "".join([*made, sql[end:]])


def _sql(node: exp.Expr) -> str:
    """Return the text of a node. Spark takes `x IS NOT NULL` for another expression than `NOT x IS NULL`."""
    found = node.copy()
    for each in list(found.find_all(exp.Not)):
        if isinstance(each.this, exp.Is) and isinstance(each.this.expression, exp.Null):
            each.replace(exp.Is(this=each.this.this, expression=exp.Var(this="NOT NULL")))
    if isinstance(found, exp.Not) and isinstance(found.this, exp.Is) and isinstance(found.this.expression, exp.Null):
        found = exp.Is(this=found.this.this, expression=exp.Var(this="NOT NULL"))
    return found.sql(dialect="spark")


def _column(name: str, *fields: str) -> exp.Column:
    """Return a column, or the field of a struct in it."""
    return exp.column(*(exp.to_identifier(each, quoted=True) for each in (*reversed(fields), name)))


class _Reader:
    """Reads one query."""

    def __init__(self, query: exp.Query, table: str, columns: Sequence[str]) -> None:
        if not isinstance(query, exp.Select):
            raise NotSplit("it is a set operation, not one SELECT")
        self.names = {name.casefold() for name in columns}
        self.columns = columns
        self.query = self._checked(query, table)
        self.outputs = list(self._outputs())
        self.keys: list[exp.Expr] = []
        self.aggregates: list[exp.Expr] = []

    def split(self) -> Split:
        """Return the query as parts and merge."""
        parts = [*self.outputs, *filter(None, (self.query.args.get("having"), self.query.args.get("order")))]
        groups = self.query.args.get("group") is not None or any(_aggregates(each) for each in parts)
        return self._of_groups() if groups else self._of_rows()

    # -- what may be there ---------------------------------------------------------------------------------------------

    def _checked(self, query: exp.Select, table: str) -> exp.Select:
        """Return a copy that names the table `ROWS`, without its name before columns, and with `:qod_now`."""
        for name, value in query.args.items():
            if value and name not in _CLAUSES:
                raise NotSplit(f"it has {name.strip('_').upper()}")
        if any(each is not query for each in query.find_all(exp.Query)):
            raise NotSplit("it has a subquery")
        read = query.args["from_"].this if query.args.get("from_") is not None else None
        if not isinstance(read, exp.Table) or read.name.casefold() != table.casefold():
            raise NotSplit(f"it does not read {table} alone")
        if any(value for name, value in read.args.items() if name not in ("this", "alias")):
            raise NotSplit(f"it reads {_sql(read)}")
        if read.args.get("alias") is not None and read.args["alias"].columns:
            raise NotSplit("it names the columns of the table")
        distinct = query.args.get("distinct")
        if distinct is not None and distinct.args.get("on") is not None:
            raise NotSplit("it has DISTINCT ON")
        alias = read.alias_or_name
        self._check_columns(query, alias)
        copy = query.copy()
        copy.args["from_"].set(
            "this", exp.Table(this=exp.to_identifier(ROWS), alias=exp.TableAlias(this=exp.to_identifier(alias, True)))
        )
        self.whole = _sql(copy)
        for node in list(copy.walk()):
            self._check(node)
            if _is_now(node):
                node.replace(exp.Placeholder(this=NOW))
            elif isinstance(node, exp.Column):
                node.replace(self._unqualified(node, alias))
        return copy

    def _check(self, node: exp.Expr) -> None:
        if isinstance(node, exp.Window):
            raise NotSplit("it has a window with OVER")
        if isinstance(node, exp.Lambda):
            raise NotSplit("it has a function with an arrow")
        if isinstance(node, _UNSTEADY):
            raise NotSplit(f"{_sql(node)} may differ from part to part")
        if isinstance(node, exp.Func) and is_aggregate(node):
            _check_aggregate(node)
        elif isinstance(node, exp.Any | exp.UDTF):
            raise NotSplit(f"{_sql(node)} does not split")
        if isinstance(node, exp.Column) and node.parts[0].name.casefold() == "_metadata":
            raise NotSplit("it reads the metadata of files")

    def _check_columns(self, query: exp.Select, alias: str) -> None:
        """Raise NotSplit for a name that stands for no column: Spark may take it for a function, such as `user`."""
        of_table = {*self.names, alias.casefold()}
        of_result = {each.alias.casefold() for each in query.expressions if isinstance(each, exp.Alias)}
        for column in query.find_all(exp.Column):
            clause: exp.Expr = column
            while clause.parent is not query and clause.parent is not None:
                clause = clause.parent
            known = of_table if clause.arg_key in ("expressions", "where") else of_table | of_result
            if not isinstance(column.this, exp.Star) and column.parts[0].name.casefold() not in known:
                raise NotSplit(f"{_sql(column)} is no column of {alias}")

    def _unqualified(self, column: exp.Column, alias: str) -> exp.Expr:
        first, *fields = column.parts
        if isinstance(column.this, exp.Star):
            if len(column.parts) > 2 or (fields and first.name.casefold() != alias.casefold()):
                raise NotSplit(f"it has {_sql(column)}")
            return exp.Star()
        if not fields or first.name.casefold() != alias.casefold():
            return column
        if alias.casefold() in self.names:
            raise NotSplit(f"{alias} names the table and a column of it")
        return _column(fields[0].name, *(each.name for each in fields[1:]))

    def _outputs(self) -> Iterator[exp.Expr]:
        """Yield the columns of the result, `*` as all columns of the table."""
        for each in self.query.expressions:
            if isinstance(each, exp.Star):
                if any(each.args.values()):
                    raise NotSplit(f"it has {_sql(each)}")
                yield from (_column(name) for name in self.columns)
            elif isinstance(each, exp.Aliases):
                raise NotSplit(f"it has {_sql(each)}")
            else:
                yield each

    def _output(self, name: str) -> int | None:
        """Return the position of the column of the result with this name. Raises NotSplit: there are several."""
        found = [i for i, each in enumerate(self.outputs) if each.alias_or_name.casefold() == name.casefold()]
        if len(found) > 1:
            raise NotSplit(f"several columns of the result are called {name}")
        return found[0] if found else None

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _of_rows(self) -> Split:
        if self.query.args.get("having") is not None:
            raise NotSplit("it has HAVING without groups")
        order = [self._row_order(each) for each in self._ordered()]
        distinct = "DISTINCT " if self.query.args.get("distinct") is not None else ""
        listed = ", ".join(f"{_sql(each.unalias())} AS `_{i}`" for i, each in enumerate(self.outputs))
        by = f" ORDER BY {', '.join(order)}" if order else ""
        part = f"SELECT {distinct}{listed}{self._source()}"
        if (most := self._most_rows()) is not None:
            part += f"{by} LIMIT {most}"
        merged = ", ".join(f"`_{i}`" for i in range(len(self.outputs)))
        merge = f"SELECT {distinct}{merged} FROM {PARTS}{by}{self._tail()}"
        return self._split(part, part, lambda _: merge)

    def _row_order(self, ordered: exp.Ordered) -> str:
        key, copy = ordered.this, ordered.copy()
        if isinstance(key, exp.Column) and len(key.parts) == 1 and (position := self._output(key.name)) is not None:
            copy.set("this", _column(f"_{position}"))
            return _sql(copy)
        if isinstance(key, exp.Literal) and key.is_int:
            return _sql(copy)
        raise NotSplit(f"it is ordered by {_sql(key)}, which is no column of the result")

    # -- groups --------------------------------------------------------------------------------------------------------

    def _of_groups(self) -> Split:
        if self.query.args.get("distinct") is not None:
            raise NotSplit("it has DISTINCT and groups")
        self.keys = list(self._group_keys())
        outputs = [self._rewritten(each.unalias()) for each in self.outputs]
        having = self.query.args.get("having")
        kept = None if having is None else self._rewritten(self._resolved(having.this, outputs))
        order = []
        for each in self._ordered():
            copy = each.copy()
            copy.set("this", self._group_order(each.this))
            order.append(copy)
        keys = [f"{_sql(key)} AS `_k{i}`" for i, key in enumerate(self.keys)]
        partials = [text for i, each in enumerate(self.aggregates) for text in _partials(i, each)]
        if not keys and not partials:
            raise NotSplit("it aggregates nothing")
        group = f" GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}" if keys else ""
        source = self._source()
        part = f"SELECT {', '.join(keys + partials)}{source}{group}"
        means = [f"{_sql(each)} AS `_a{i}`" for i, each in enumerate(self.aggregates) if _is_average(each)]
        probe = f"SELECT {', '.join(keys + partials + means)}{source}{group}"
        return self._split(part, probe, partial(self._merge, outputs, kept, order))

    def _merge(
        self,
        outputs: Sequence[exp.Expr],
        kept: exp.Expr | None,
        order: Sequence[exp.Expr],
        types: Mapping[str, str],
    ) -> str:
        def text(node: exp.Expr) -> str:
            return _sql(node.transform(lambda each: self._merged(each, types)))

        listed = ", ".join(f"{text(each)} AS `_{i}`" for i, each in enumerate(outputs))
        group = f" GROUP BY {', '.join(f'`_k{i}`' for i in range(len(self.keys)))}" if self.keys else ""
        having = f" HAVING {text(kept)}" if kept is not None else ""
        by = f" ORDER BY {', '.join(map(text, order))}" if order else ""
        return f"SELECT {listed} FROM {PARTS}{group}{having}{by}{self._tail()}"

    def _merged(self, node: exp.Expr, types: Mapping[str, str]) -> exp.Expr:
        """Return the merge of the partial results that a placeholder stands for."""
        if not isinstance(node, exp.Column) or node.table != PARTS:
            return node
        i = int(node.name)
        aggregate = self.aggregates[i]
        inner = aggregate.this if isinstance(aggregate, exp.Filter) else aggregate
        part = _column(f"_p{i}")
        if isinstance(inner, exp.Count):
            return exp.Coalesce(this=exp.Sum(this=part), expressions=[exp.Literal.number(0)])
        if isinstance(inner, exp.Avg):
            return exp.SafeDivide(this=exp.Sum(this=part), expression=exp.Sum(this=_column(f"_n{i}")))
        if isinstance(inner, exp.Sum):
            kind, found = types.get(f"_p{i}", ""), exp.Sum(this=part)
            # a sum of decimals has more digits than its argument
            return exp.cast(found, exp.DataType.build(kind, dialect="spark")) if "decimal" in kind else found
        return type(inner)(this=part)

    def _group_keys(self) -> Iterator[exp.Expr]:
        group = self.query.args.get("group")
        if group is None:
            return
        if any(value for name, value in group.args.items() if name not in ("expressions", "all")):
            raise NotSplit("it has several sets of groups")
        if group.args.get("all"):
            yield from (each.unalias() for each in self.outputs if not _aggregates(each))
        for key in group.expressions:
            if isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets):
                raise NotSplit("it has several sets of groups")
            found = key
            if isinstance(key, exp.Literal) and key.is_int:
                if not 0 < int(key.name) <= len(self.outputs):
                    raise NotSplit(f"it has no column {key.name} to group by")
                found = self.outputs[int(key.name) - 1].unalias()
            elif isinstance(key, exp.Column) and len(key.parts) == 1 and key.name.casefold() not in self.names:
                position = self._output(key.name)
                found = key if position is None else self.outputs[position].unalias()
            if _aggregates(found):
                raise NotSplit("it groups by an aggregate")
            if isinstance(found.unnest(), exp.Placeholder | exp.Parameter):  # a number is a position
                raise NotSplit("it groups by a parameter")
            yield found

    def _resolved(self, node: exp.Expr, outputs: Sequence[exp.Expr]) -> exp.Expr:
        """Return a condition with what the names of the result's columns stand for."""

        def resolve(each: exp.Expr) -> exp.Expr:
            if not isinstance(each, exp.Column) or len(each.parts) > 1 or each.find_ancestor(exp.AggFunc) is not None:
                return each
            position = self._output(each.name)
            if position is None or not isinstance(self.outputs[position], exp.Alias):
                return each
            if each.name.casefold() in self.names:
                raise NotSplit(f"{each.name} names a column of the table and one of the result")
            return exp.paren(self.outputs[position].unalias().copy())

        return node.copy().transform(resolve)

    def _group_order(self, key: exp.Expr) -> exp.Expr:
        if isinstance(key, exp.Column) and len(key.parts) == 1 and (position := self._output(key.name)) is not None:
            return _column(f"_{position}")
        if isinstance(key, exp.Literal):
            return key.copy()
        return self._rewritten(self._resolved(key, ()))

    def _rewritten(self, node: exp.Expr) -> exp.Expr:
        """Return an expression of the merge: keys by name, and placeholders for aggregates."""
        for i, key in enumerate(self.keys):
            if node == key:
                return _column(f"_k{i}")
        if _is_split(node):
            if node not in self.aggregates:
                self.aggregates.append(node)
            return exp.column(str(self.aggregates.index(node)), table=PARTS, quoted=True)
        if isinstance(node, exp.Column):
            return self._of_key(node)
        copy = node.copy()
        for name, value in node.args.items():
            if isinstance(value, exp.Expr):
                copy.set(name, self._rewritten(value))
            elif isinstance(value, list):
                copy.set(name, [self._rewritten(each) if isinstance(each, exp.Expr) else each for each in value])
        return copy

    def _of_key(self, column: exp.Column) -> exp.Expr:
        """Return the field of a key that is a struct."""
        first, *fields = column.parts
        for i, key in enumerate(self.keys):
            if isinstance(key, exp.Column) and len(key.parts) == 1 and key.name.casefold() == first.name.casefold():
                return _column(f"_k{i}", *(each.name for each in fields))
        raise NotSplit(f"{_sql(column)} is neither grouped by nor within an aggregate")

    # -- of both -------------------------------------------------------------------------------------------------------

    def _split(self, part: str, probe: str, merge: Callable[[Mapping[str, str]], str]) -> Split:
        return Split(self.whole, part, probe, merge, len(self.outputs), tuple(self._bounds()))

    def _source(self) -> str:
        where = self.query.args.get("where")
        return f" {_sql(self.query.args['from_'])}{'' if where is None else f' {_sql(where)}'}"

    def _ordered(self) -> Sequence[exp.Ordered]:
        order = self.query.args.get("order")
        return () if order is None else order.expressions

    def _tail(self) -> str:
        clauses = (self.query.args.get("limit"), self.query.args.get("offset"))
        return "".join(f" {_sql(each)}" for each in clauses if each is not None)

    def _most_rows(self) -> int | None:
        """Return how many rows of a part can be in the result; None: any number."""
        limit, offset = self.query.args.get("limit"), self.query.args.get("offset")
        numbers = [each.expression for each in (limit, offset) if each is not None]
        if limit is None or not all(isinstance(each, exp.Literal) and each.is_int for each in numbers):
            return None
        return sum(int(each.name) for each in numbers)

    def _bounds(self) -> Iterator[Bound]:
        """Yield what the condition says of columns, of its parts that all have to hold."""
        where = self.query.args.get("where")
        for each in () if where is None else _conjuncts(where.this):
            if isinstance(each, exp.Between) and not each.args.get("symmetric"):
                yield from self._bound(each.this, ">=", each.args["low"])
                yield from self._bound(each.this, "<=", each.args["high"])
            elif (operator := _OPERATORS.get(type(each))) is not None:
                yield from self._bound(each.this, operator, each.expression)
                yield from self._bound(each.expression, _MIRRORED[operator], each.this)

    def _bound(self, column: exp.Expr, operator: str, value: exp.Expr) -> Iterator[Bound]:
        if isinstance(column, exp.Column) and value.find(exp.Column) is None:
            yield Bound(".".join(part.name for part in column.parts).casefold(), operator, _sql(value))


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of a condition that all have to hold."""
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from _conjuncts(condition.this)
        yield from _conjuncts(condition.expression)
    else:
        yield condition


def _is_now(node: exp.Expr) -> bool:
    return isinstance(node, exp.CurrentTimestamp) or (isinstance(node, exp.Anonymous) and node.name.lower() == "now")


def _aggregates(node: exp.Expr) -> bool:
    return any(is_aggregate(each) for each in node.find_all(exp.Func))


def _is_split(node: exp.Expr) -> bool:
    inner = node.this if isinstance(node, exp.Filter) else node
    return isinstance(inner, exp.Func) and is_aggregate(inner)


def _is_average(node: exp.Expr) -> bool:
    return isinstance(node.this if isinstance(node, exp.Filter) else node, exp.Avg)


def _check_aggregate(node: exp.Func) -> None:
    """Raise NotSplit for an aggregate whose partial results can't be merged."""
    if type(node) not in (exp.Count, exp.Sum, exp.Min, exp.Max, exp.Avg):
        raise NotSplit(f"{_sql(node)} does not split")
    if any(_aggregates(each) for each in node.iter_expressions()):
        raise NotSplit(f"{_sql(node)} holds an aggregate")
    if node.find(exp.Distinct, exp.Order, exp.IgnoreNulls, exp.RespectNulls, exp.HavingMax) is not None:
        raise NotSplit(f"{_sql(node)} does not split")
    if node.expressions and not isinstance(node, exp.Count):
        raise NotSplit(f"{_sql(node)} does not split")


def _partials(i: int, aggregate: exp.Expr) -> Iterator[str]:
    """Yield the columns of a part for one aggregate."""
    if not _is_average(aggregate):
        yield f"{_sql(aggregate)} AS `_p{i}`"
        return
    inner = aggregate.this if isinstance(aggregate, exp.Filter) else aggregate
    for name, made in (
        ("_p", exp.Sum(this=exp.cast(inner.this.copy(), "double"))),
        ("_n", exp.Count(this=inner.this.copy())),
    ):
        node: exp.Expr = made
        if isinstance(aggregate, exp.Filter):
            node = aggregate.copy()
            node.set("this", made)
        yield f"{_sql(node)} AS `{name}{i}`"
