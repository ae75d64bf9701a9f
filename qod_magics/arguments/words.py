"""The words of a magic line: quotes as in a shell, a comment at its end, and lines that go on below."""

from __future__ import annotations

import re
import shlex

from qod_magics.errors import UsageProblem

_BACKSLASH = re.compile(r"\\\s*$")


def words_of(line: str) -> list[str]:
    """Split a magic line into words, without the comment at its end. Raises UsageProblem: a quote is left open."""
    try:
        return shlex.split(without_comment(line))
    except ValueError:
        _, quote = _end_of(line)
        what = f"a closing {quote} is missing" if quote else "nothing follows the \\ at the end"
        raise UsageProblem(f"{what} in: {' '.join(line.split())}") from None


def without_comment(line: str) -> str:
    """Return the line up to a `#` outside quotes that begins a word."""
    end, _ = _end_of(line)
    return line[:end]


def continued(line: str) -> str | None:
    """Return a magic line without the backslash at its end, by which it goes on below; None: it has none."""
    line = without_comment(line)
    backslash = _BACKSLASH.search(line)
    return None if backslash is None else line[: backslash.start()]


def joined(line: str, body: str) -> tuple[str, str]:
    """Return the whole magic line of a cell, and the rest of its body.

    The line goes on below after a backslash at its end, which blanks or a comment may follow, and where it leaves a
    quote open that a line below closes at the end of a word.
    """
    whole, below = without_comment(line), body.splitlines(keepends=True)
    while below:
        if (begun := continued(whole)) is not None:
            whole = without_comment(f"{begun} {below.pop(0).rstrip()}")
            continue
        _, quote = _end_of(whole)
        closing = next((n for n, each in enumerate(below) if quote in each), None) if quote else None
        if closing is None or not re.match(rf"[^{quote}]*{quote}(\s|$)", below[closing]):
            break
        whole = without_comment(" ".join([whole, *(each.strip() for each in below[: closing + 1])]))
        below = below[closing + 1 :]
    return whole, "".join(below)


def _end_of(line: str) -> tuple[int, str]:
    """Return where the words of a line end, and the quote that it leaves open, or ""."""
    quote, before, escaped = "", " ", False
    for place, character in enumerate(line):
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and before.isspace():
            return place, ""
        before = character
    return len(line), quote
