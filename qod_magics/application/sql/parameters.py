"""Variables of the notebook in an SQL text: `:name` is a typed parameter, with its value when the cell runs.

A list where the text says `IN (:zones)` is the list of that IN; elsewhere it is an array, and a dictionary is a map.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlglot.tokenizer_core import Token, TokenType

from qod_magics.application.sql.names import place, tokenized
from qod_magics.errors import ApplicationError, nearest, with_article

if TYPE_CHECKING:
    from pyspark.sql import Column

_SCALARS = (bool, int, float, str, bytes, bytearray, Decimal, date, datetime, timedelta, type(None))
_LISTS = (list, tuple, set, frozenset, range)
_WORD = r"[A-Za-z_]\w*"
#: A string that is nothing but a placeholder: of Python, Jinja, a shell or SQL.
_ONLY_A_PLACEHOLDER = re.compile(rf"\{{\{{?\s*({_WORD})\s*\}}?\}}|\$\{{?({_WORD})\}}?|:({_WORD})")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that an SQL text names. Two are equal if name, type and value are."""

    name: str
    text: str  #: of type and value
    value: Any = field(compare=False, repr=False)  #: a number, text, date or time, or a list or dictionary of these


def parameters_of(sql: str, values: Mapping[str, Any], *, whose: str) -> tuple[Parameter, ...]:
    """Return the parameters that a text names, with their values now.

    Args:
        sql: the text.
        values: by name; of a cell those of the notebook.
        whose: where the values come from, as errors say it.

    Raises:
        ApplicationError: there is no value of a name, or it can't be a parameter, or the text uses another spelling.

    """
    tokens = _tokens(sql)
    _refuse_other_spellings(sql, tokens, values)
    found: dict[str, Parameter] = {}
    for at in _named(tokens):
        name = tokens[at + 1].text
        if name not in values:
            plain = [each for each, value in values.items() if not each.startswith("_") and isinstance(value, _SCALARS)]
            raise ApplicationError(f"{place(tokens[at])}: :{name} must be {whose}.{nearest(name, plain)}")
        if name not in found:
            value = _plain(name, values[name])
            found[name] = Parameter(name, repr(value), value)
    return tuple(found.values())


def bound(sql: str, parameters: Collection[Parameter]) -> tuple[str, dict[str, Column]]:
    """Return a text and the arguments of `spark.sql`: each element of the list of an IN is a parameter of its own."""
    values = {parameter.name: parameter.value for parameter in parameters}
    arguments = {name: _column(value) for name, value in values.items()}
    tokens, edits = _tokens(sql), []
    for at in _named(tokens):
        name = tokens[at + 1].text
        within = _in_brackets(tokens, at)
        if within is None or not isinstance(values.get(name), list):
            continue
        if not values[name]:
            raise ApplicationError(
                f"{place(tokens[at])}: :{name} must have a value or more after IN, got an empty list"
            )
        each = {f"{name}__{number}": value for number, value in enumerate(values[name], 1)}
        arguments |= {one: _column(value) for one, value in each.items()}
        listed = ", ".join(f":{one}" for one in each)
        edits.append((tokens[at].start, tokens[at + 1].end + 1, listed if within else f"({listed})"))
    for start, end, text in reversed(edits):
        sql = sql[:start] + text + sql[end:]
    return sql, arguments


def _tokens(sql: str) -> Sequence[Token]:
    try:
        return tokenized(sql)
    except ApplicationError:  # Spark says what is wrong
        return ()


def _named(tokens: Sequence[Token]) -> Iterator[int]:
    """Yield the index of the colon of each `:name`; a colon right behind a name is one of a STRUCT's field."""
    for at, token in enumerate(tokens[:-1]):
        after, before = tokens[at + 1], tokens[at - 1] if at else None
        if token.token_type != TokenType.COLON or after.start != token.end + 1 or not re.fullmatch(_WORD, after.text):
            continue
        if before is None or before.end + 1 < token.start or not re.fullmatch(r"[\w`\]]+", before.text):
            yield at


def _in_brackets(tokens: Sequence[Token], at: int) -> bool | None:
    """Tell whether a parameter stands alone in the brackets of an IN (True) or right behind one (False)."""
    before = [token.token_type for token in tokens[max(at - 2, 0) : at]]
    if before[-1:] == [TokenType.IN]:
        return False
    closed = at + 2 < len(tokens) and tokens[at + 2].token_type == TokenType.R_PAREN
    return True if before == [TokenType.IN, TokenType.L_PAREN] and closed else None


def _refuse_other_spellings(sql: str, tokens: Sequence[Token], values: Mapping[str, Any]) -> None:
    """Raise ApplicationError for `{name}`, `{{name}}`, `$name` and `${name}`, also as the whole of a string."""
    for at, token in enumerate(tokens):
        name = None
        if token.token_type == TokenType.STRING:
            found = _ONLY_A_PLACEHOLDER.fullmatch(sql[token.start + 1 : token.end])
            name = next(filter(None, found.groups()), None) if found else None
            if name not in values:
                continue
        elif token.token_type == TokenType.L_BRACE or (token.token_type == TokenType.PARAMETER and token.text == "$"):
            inside = [each.text for each in tokens[at : at + 4]]
            name = next((text for text in inside if re.fullmatch(_WORD, text)), None)
            if "." in inside or ":" in inside:  # ${spark.option}, which Spark replaces
                return
        else:
            continue
        wanted = f":{name}" if name else ":name"
        raise ApplicationError(
            f"{place(token)}: a variable of the notebook must be written {wanted}, without quotes, got "
            f"{_quoted(sql, tokens, at)}"
        )


def _quoted(sql: str, tokens: Sequence[Token], at: int) -> str:
    """Return a placeholder as it is written."""
    if tokens[at].token_type == TokenType.STRING:
        return sql[tokens[at].start : tokens[at].end + 1]
    written = re.compile(r"\$?\{[^}]*\}+|\$\w+|\$?\{").match(sql, tokens[at].start)
    return written[0] if written else tokens[at].text


def _plain(name: str, value: Any) -> Any:
    """Return a value of Python's own types, and lists for all that is one."""
    kind = type(value)
    if kind.__name__ in ("NaTType", "NAType"):
        return None
    for convert in ("to_pydatetime", "to_pytimedelta") if kind.__module__.startswith("pandas.") else ():
        if hasattr(value, convert) and not hasattr(value, "__len__"):
            return getattr(value, convert)()
    if kind.__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.astype("datetime64[us]").item() if kind.__name__ == "datetime64" else value.item()
    if isinstance(value, _SCALARS):
        return value
    if kind.__module__.split(".")[0] in ("numpy", "pandas") and getattr(value, "ndim", None) == 1:
        return _list(name, value)
    if isinstance(value, _LISTS) or kind.__name__ in ("dict_keys", "dict_values"):
        return _list(name, sorted(value, key=repr) if isinstance(value, set | frozenset) else value)
    if isinstance(value, dict):
        return {_plain(name, key): _plain(name, each) for key, each in value.items()}
    raise ApplicationError(
        f":{name} must be a number, text, a date or time, or a list or dictionary of these, got "
        f"{with_article(kind.__name__)}; put what the query needs of it into a variable"
    )


def _list(name: str, values: Iterable[Any]) -> list[Any]:
    return [_plain(name, each) for each in values]


def _column(value: Any) -> Column:
    """Return a literal; collections by Spark's own constructors, which find a common type."""
    from pyspark.sql import functions as F

    if isinstance(value, list):
        return F.array(*map(_column, value))
    if isinstance(value, dict):
        return F.create_map(*(_column(each) for pair in value.items() for each in pair))
    return F.lit(bytes(value) if isinstance(value, bytearray) else value)
