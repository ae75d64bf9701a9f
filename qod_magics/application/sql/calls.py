"""Calls of functions in an SQL text, by its tokens: what stands where, Spark's own syntax included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from qod_magics.application.sql.names import place
from qod_magics.errors import ApplicationError

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
        """Where it stands."""
        return place(self.name)


def is_call(tokens: Sequence[Token], index: int) -> bool:
    """Whether a call of a function without a database begins there."""
    after = tokens[index + 1].token_type if index + 1 < len(tokens) else None
    return after == TokenType.L_PAREN and (index == 0 or tokens[index - 1].token_type != TokenType.DOT)


def call_at(tokens: Sequence[Token], index: int) -> Call:
    """The call that begins there. Raises ApplicationError if its parenthesis is not closed."""
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
    """The indices of the first and the last token of the column of a SELECT in which these are."""
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
    """The text from the first of these tokens to the last one."""
    return sql[tokens[0].start : tokens[-1].end + 1]


def _word(token: Token) -> str:
    """A keyword, the first one of several that are one token (GROUP BY); "" for quoted text and names."""
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
    """The parts between the commas that are in no further parentheses."""
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
