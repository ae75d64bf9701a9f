"""Estimates in the SQL of a stream: `est_sum(fare)` and the like, replaced before Spark sees the text.

All else of the text stays as it was written. A column that holds such a call and has no name is called as it is
written, `est_sum(fare)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from qod_magics.application.sql.names import ESTIMATES, is_aggregate, parsed, place, tokenized
from qod_magics.errors import ApplicationError, UsageProblem, nearest
from qod_magics.estimate import aggregates, formulas
from qod_magics.estimate.groups import groups_read
from qod_magics.estimate.text import ANY, Text, TextFunctions

# --- Calls of functions -----------------------------------------------------------------------------------------------

_OPENING = frozenset((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE))
_CLOSING = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE))
#: What columns come after, the words before one, and those after it.
_CLAUSES = frozenset(("SELECT", "AGGREGATE"))
_BEFORE = _CLAUSES | {"DISTINCT", "ALL"}
_AFTER = frozenset(
    (
        *("FROM", "LATERAL", "WHERE", "GROUP", "HAVING", "QUALIFY", "WINDOW", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"),
        *("LIMIT", "OFFSET", "UNION", "EXCEPT", "INTERSECT", "MINUS", "|>", ";", ","),
    )
)


@dataclass(frozen=True, slots=True)
class Call:
    """A call, with the FILTER that belongs to it."""

    name: Token
    last: int  #: index of its last token
    arguments: tuple[tuple[Token, ...], ...]
    condition: tuple[Token, ...]  #: of FILTER (WHERE ...); () without
    windowed: bool  #: whether OVER comes after it

    @property
    def place(self) -> str:
        """Return where it stands."""
        return place(self.name)


def is_call(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a call of a function without a database begins there."""
    after = tokens[index + 1].token_type if index + 1 < len(tokens) else None
    return after == TokenType.L_PAREN and (index == 0 or tokens[index - 1].token_type != TokenType.DOT)


def call_at(tokens: Sequence[Token], index: int) -> Call:
    """Return the call that begins there. Raises ApplicationError if its parenthesis is not closed."""
    last = _end(tokens, index + 1)
    arguments = tuple(_split(tokens[index + 2 : last]))
    words = [token.text.upper() for token in tokens[last + 1 : last + 4]]
    condition: tuple[Token, ...] = ()
    if words == ["FILTER", "(", "WHERE"]:
        begin, last = last + 4, _end(tokens, last + 2)
        condition = tuple(tokens[begin:last])
    windowed = last + 1 < len(tokens) and tokens[last + 1].text.upper() == "OVER"
    return Call(tokens[index], last, arguments, condition, windowed)


def column_around(tokens: Sequence[Token], first: int, last: int) -> tuple[int, int]:
    """Return the indices of the first and the last token of the column of a SELECT in which these are."""
    levels = _levels(tokens)
    begin, level = first, levels[first]
    while begin > 0 and not (_word(tokens[begin]) in _CLAUSES and levels[begin] == level):
        begin -= 1
        level = min(level, levels[begin])
    for index in range(begin, first):
        if levels[index] == level and (tokens[index].text == "," or _word(tokens[index]) in _BEFORE):
            begin = index + 1
    while last + 1 < len(tokens) and levels[last + 1] >= level:
        after = _word(tokens[last + 1])
        distinct = after == "FROM" and _word(tokens[last]) == "DISTINCT"  # a IS DISTINCT FROM b
        if levels[last + 1] == level and after in _AFTER and not distinct:
            break
        last += 1
    return begin, last


def _levels(tokens: Sequence[Token]) -> list[int]:
    """In how many parentheses each token stands; these themselves stand outside."""
    levels, depth = [], 0
    for token in tokens:
        depth -= token.token_type in _CLOSING
        levels.append(depth)
        depth += token.token_type in _OPENING
    return levels


def written(sql: str, tokens: Sequence[Token]) -> str:
    """Return the text from the first of these tokens to the last one."""
    return sql[tokens[0].start : tokens[-1].end + 1]


def _word(token: Token) -> str:
    """Return a keyword, the first one of several that are one token (GROUP BY); "" for quoted text and names."""
    quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
    return "" if quoted else token.text.upper().partition(" ")[0]


def _end(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        depth += (tokens[index].token_type in _OPENING) - (tokens[index].token_type in _CLOSING)
        if depth == 0:
            return index
    raise ApplicationError(f"{place(tokens[opening])}: this parenthesis is not closed")


def _split(tokens: Sequence[Token]) -> Iterator[tuple[Token, ...]]:
    """Yield the parts between the commas that are in no further parentheses."""
    depth, part = 0, list[Token]()
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 0 and token.token_type == TokenType.COMMA:
            yield tuple(part)
            part = []
        else:
            part.append(token)
    if tokens:
        yield tuple(part)


DEFAULT_LEVEL = 0.95
#: Words that are values, whatever columns there are.
_LITERALS = frozenset((TokenType.NULL, TokenType.TRUE, TokenType.FALSE))
#: It counts different values, of one column or more.
DISTINCT = "est_count_distinct"


@dataclass(frozen=True, slots=True)
class _Form:
    """What one of the functions takes, and what it stands for."""

    example: str
    number: int  #: of arguments
    make: Callable[..., Text]  #: of TextFunctions, the arguments as texts, the level, and the part of the row's key
    or_more: bool = False  #: arguments


def _double(text: Text) -> Text:
    return text.cast("double")


_FORMS: Mapping[str, _Form] = {
    "est_count": _Form("est_count(*) or est_count(fare)", 1, formulas.count),
    "est_sum": _Form("est_sum(fare)", 1, lambda f, x, *rest: formulas.total(f, _double(x), *rest)),
    "est_avg": _Form("est_avg(fare)", 1, lambda f, x, *rest: formulas.average(f, _double(x), *rest)),
    "est_ratio": _Form(
        "est_ratio(tip, fare)", 2, lambda f, x, y, *rest: formulas.ratio(f, _double(x), _double(y), *rest)
    ),
    "est_quantile": _Form(
        "est_quantile(fare, 0.9)", 2, lambda f, x, q, *rest: formulas.quantile(f, _double(x), q, *rest)
    ),
    DISTINCT: _Form("est_count_distinct(user)", 1, aggregates.distinct, or_more=True),
}


def estimated(sql: str, plain: Mapping[int, str] | None = None) -> str:
    """Return the text with expressions of Spark in place of estimates; the same text, if there are none.

    Args:
        sql: as it was written.
        plain: calls of other functions that are to be estimates, too: the name of the estimate by the position in the
            text. Their columns get no names.

    Raises:
        ApplicationError: with line and column: an unknown function of the kind, wrong arguments, calls within calls, or
            calls where there is no group.

    """
    found = _calls(sql, plain or {})
    if not found:
        return sql
    tokens, calls = found
    for index, (name, call) in calls.items():
        inner = next((other for other in calls if index < other <= call.last), None)
        if inner is not None:
            raise ApplicationError(f"{place(tokens[inner])}: {calls[inner][0]} stands within {name}: take it out")
    unnamed = _unnamed(sql)
    edits = []
    for index, (name, call) in calls.items():
        edits.append((call.name.start, tokens[call.last].end + 1, _expression(sql, name, call)))
        if call.name.start in unnamed:
            first, last = column_around(tokens, index, call.last)
            label = " ".join(written(sql, tokens[first : last + 1]).split()).replace("`", "``")
            edits.append((tokens[last].end + 1, tokens[last].end + 1, f" AS `{label}`"))
    for start, end, text in sorted(edits, reverse=True):
        sql = sql[:start] + text + sql[end:]
    return sql


def has_estimates(sql: str) -> bool:
    """Return whether a text calls such functions. False for text that can't be read: Spark decides then."""
    try:
        return bool(_calls(sql, {}))
    except ApplicationError:
        return False


def _calls(sql: str, plain: Mapping[int, str]) -> tuple[Sequence[Token], dict[int, tuple[str, Call]]] | None:
    """Return the tokens, and the calls by the index of their first one, each with the name of its estimate."""
    if ESTIMATES not in sql.lower() and not plain:
        return None
    tokens = tokenized(sql)
    named = {
        index: plain.get(token.start, token.text.lower())
        for index, token in enumerate(tokens)
        if token.start in plain or (token.text.lower().startswith(ESTIMATES) and is_call(tokens, index))
    }
    calls = {index: (name, call_at(tokens, index)) for index, name in named.items()}
    return (tokens, calls) if calls else None


def _unnamed(sql: str) -> set[int]:
    """Return the positions of calls that are the first ones of their columns, where these have no names; none for text
    that can't be parsed. Raises ApplicationError for calls where there is no group."""
    try:
        query = parsed(sql)
    except ApplicationError:
        return set()
    found: dict[int, int] = {}
    for call in query.find_all(exp.Anonymous):
        if not call.name.lower().startswith(ESTIMATES) or "start" not in call.meta:
            continue
        _check_around(call)
        column: exp.Expr = call
        while column.parent is not None and not isinstance(column.parent, exp.Select | exp.Subquery):
            column = column.parent
        if column.arg_key == "expressions" and not isinstance(column, exp.Alias | exp.Aliases):
            start = int(call.meta["start"])
            found[id(column)] = min(start, found.get(id(column), start))
    return set(found.values())


def _check_around(call: exp.Anonymous) -> None:
    """Raise ApplicationError for a call without a group, and for one whose result is read as a number."""
    name = call.name.lower()
    where = f"line {call.meta['line']}, column {call.meta['col'] - len(name) + 1} of the SQL"
    if isinstance(call.parent, exp.Binary | exp.Neg) and not isinstance(call.parent, exp.Dot):
        raise ApplicationError(f"{where}: {name} gives a struct of value, low and high: write {name}(...).value")
    around = call.parent
    while around is not None and not isinstance(around, exp.Select | exp.Where | exp.Group | exp.Join):
        if isinstance(around, exp.Func) and is_aggregate(around):
            raise ApplicationError(f"{where}: {name} stands within {around.sql_name().lower()}: estimate in a subquery")
        around = around.parent
    if around is not None and not isinstance(around, exp.Select):
        raise ApplicationError(
            f"{where}: {name} is of a group, and there are none yet in {around.key.upper()}: take HAVING, where "
            f"{name}(...).value can stand"
        )


def _expression(sql: str, name: str, call: Call) -> str:
    """Return what a call stands for."""
    form = _FORMS.get(name)
    if form is None:
        raise ApplicationError(f"{call.place}: there is no function {name}.{nearest(name, _FORMS)}")
    if call.windowed:
        raise ApplicationError(f"{call.place}: {name} is of a group, not of a window with OVER: take GROUP BY")
    given, level = _level(sql, name, call)
    if not form.number <= len(given) <= (len(given) if form.or_more else form.number) or not all(given):
        number = f"{form.number} argument{'s' * (form.number > 1)}{' or more' * form.or_more}"
        raise ApplicationError(
            f"{call.place}: {name} takes {number}, beside level => 0.9 by name, not {len(given)}: {form.example}"
        )
    if given[0][0].token_type in (TokenType.DISTINCT, TokenType.ALL):
        word = given[0][0].text.upper()
        why = f"{DISTINCT}(user) counts different values" if "count" in name else "a sample tells little of such values"
        raise ApplicationError(f"{place(given[0][0])}: {name} takes no {word}: {why}")
    texts: list[Text | float | None] = [_of_rows(sql, name, each, call) for each in given]
    if name == "est_quantile":
        texts[1] = _number(sql, given[1], "the fraction of a quantile", formulas.check_fraction)
    f = TextFunctions()
    try:
        groups = groups_read(name.removeprefix(ESTIMATES), _name(sql, given[0]))
        if groups is not None:
            column = Text(f"({texts[0]})") if call.condition else texts[0]
            return str(aggregates.chained_total(f, column, level, groups.shared))
        if name == DISTINCT:
            sampled = aggregates.kept_whole(f, [_name(sql, each) for each in given])
            return form.make(f, texts, level, *sampled).sql
        return form.make(f, *texts, level, formulas.part_of(f)).sql
    except UsageProblem as error:
        raise ApplicationError(f"{call.place}: {error}", rule=error.rule) from None


def _name(sql: str, argument: Sequence[Token]) -> str | None:
    """Return the name of a column that is an argument as it is; None for an expression, and for a field of a struct."""
    if not all(_is_name(sql, token) for token in argument[::2]):
        return None
    if len(argument) == 1:
        return argument[0].text
    if len(argument) != 3 or argument[1].token_type != TokenType.DOT:
        return None
    try:
        read = parsed(sql).find_all(exp.Table, exp.Subquery)
    except ApplicationError:
        return None
    tables = {each.alias_or_name.casefold() for each in read}
    return argument[2].text if argument[0].text.casefold() in tables else None


def _is_name(sql: str, token: Token) -> bool:
    """Return whether a token can name a column: quoted, or a word, of Spark's own, too, as `date`; what stands for a
    value without a column of that name, as `current_date`, does not where there is one."""
    if token.token_type == TokenType.IDENTIFIER:
        return True
    return token.token_type not in _LITERALS and token.text.isidentifier() and written(sql, [token]) == token.text


def _level(sql: str, name: str, call: Call) -> tuple[list[tuple[Token, ...]], float]:
    """Return the arguments without names, and the level."""
    given = list(call.arguments)
    level = DEFAULT_LEVEL
    for each in call.arguments:
        if len(each) > 1 and each[1].token_type == TokenType.FARROW:
            if each[0].text.lower() != "level" or each is not call.arguments[-1]:
                hint = nearest(each[0].text, ["level"]) if each[0].text.lower() != "level" else " It comes last, once."
                raise ApplicationError(f"{place(each[0])}: {name} takes no {each[0].text} => here.{hint}")
            level = _number(sql, each[2:], "the level", formulas.check_level, each[0])
            given.remove(each)
    return given, level


def _number(
    sql: str, tokens: Sequence[Token], what: str, check: Callable[[float], None], before: Token | None = None
) -> float:
    where = place(tokens[0] if tokens or before is None else before)
    text = written(sql, tokens) if tokens else "nothing"
    try:
        value = float(text)
    except ValueError:
        raise ApplicationError(f"{where}: {what} is a number as such, like 0.9, not {text}") from None
    try:
        check(value)
    except UsageProblem as error:
        raise ApplicationError(f"{where}: {error}", rule=error.rule) from None
    return value


def _of_rows(sql: str, name: str, argument: Sequence[Token], call: Call) -> Text | None:
    """Return an argument, null in rows that a FILTER leaves out; None for the * of all rows."""
    star = len(argument) == 1 and argument[0].token_type == TokenType.STAR
    if star and name != "est_count":
        raise ApplicationError(f"{place(argument[0])}: {name} is of values, not of *: {_FORMS[name].example}")
    if star and call.condition:
        return Text(f"CASE WHEN {written(sql, call.condition)} THEN 1 END")
    if star:
        return None
    text = written(sql, argument)
    if call.condition:
        return Text(f"CASE WHEN {written(sql, call.condition)} THEN {text} END")
    return Text(text) if len(argument) == 1 else Text(text, ANY)
