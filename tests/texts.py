"""What a notebook shows where only text is shown: of an object, and of all that its public attributes lead to; and
which names and figures a text holds, whatever its words: `assert tells(text, "Snk", "1,234 rows")`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from qod_magics.errors import QodError

OURS = ("qod_magics", "qod_widgets")


def reached(path: str, value: Any, seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Our objects from `value` on, also in mappings and sequences, each once, with the way to it."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        for key, each in list(value.items()):
            yield from reached(f"{path}[{key!r}]", each, seen)
    elif isinstance(value, list | tuple):
        for i, each in enumerate(value):
            yield from reached(f"{path}[{i}]", each, seen)
    elif type(value).__module__.startswith(OURS):
        yield path, value
        names = {*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())}
        names |= {name for kind in type(value).__mro__ for name, has in vars(kind).items() if isinstance(has, property)}
        for name in sorted(name for name in names if not name.startswith("_")):
            with suppress(QodError):  # some say that it is too early
                yield from reached(f"{path}.{name}", getattr(value, name, None), seen)


def bare(texts: Mapping[str, str]) -> list[str]:
    """Where the text is a class and an address only. A clock has nothing to say."""
    return [
        path for path, text in texts.items() if re.match(r"<[\w.]+ object at 0x", text) and not path.endswith(".clock")
    ]


def tells(text: object, *parts: object) -> bool:
    """Whether one line of a text holds these names, values and figures in this order, each as a whole word."""
    whole = (rf"(?<!\w){re.escape(str(part))}(?!\w)" for part in parts)
    return re.search(".*?".join(whole), str(text)) is not None
