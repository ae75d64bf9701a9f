"""How values and hints are worded in messages: always short, always on one line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from qod_magics.errors import nearest

_LONGEST_VALUE = 80  #: characters of a value that a message shows
_LONGEST_HINT = 200  #: a longer hint (hundreds of names) is useless and left out
_LISTED = 5  #: names that a sentence lists before it says how many more there are


def show(value: Any) -> str:
    """Return `value` as JSON would write it, on one line, cut to _LONGEST_VALUE characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(f"<{type(value).__name__}>")
    text = _printable(text)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 4]} ..."


def hint(word: str, known: Iterable[str]) -> str:
    """Return the nearest of the known names, as `nearest` words it, if that is short enough to help."""
    text = _printable(nearest(word, known))
    return text if len(text) <= _LONGEST_HINT else ""


def listed(names: Sequence[str], separator: str = ", ") -> str:
    """Return names with commas, or another separator, at most `_LISTED` of them."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return separator.join(names[:_LISTED]) + more


def counted(number: object, noun: str) -> str:
    """Return a number of things: "1 instance", "3 instances"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _printable(text: str) -> str:
    """Write line and paragraph separators, control characters and lone surrogates as escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
