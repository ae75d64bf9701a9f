"""The line of an error that says most, whichever of Spark's layers raised it."""

from __future__ import annotations

import re

#: Characters of the longest line that is told.
MOST = 400

_DETAILS = re.compile(r'^\s*details = "(.*)"$', re.MULTILINE)
_BEFORE_THE_LAST = re.compile(r"^.*last error: (?:UNKNOWN: )?(?:ipv[46]:\S+: )?")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+[.$])?(\w+): (\S.*)$", re.MULTILINE)


def reason(error: BaseException) -> str:
    """One line of at most `MOST` characters: of a failed connection gRPC's own words instead of its object's layout, of
    a failure on a server the message and its first cause, without the stack of the JVM."""
    text = str(error)
    if text.startswith("<_") and (details := _DETAILS.search(text)):
        text = _BEFORE_THE_LAST.sub("", details[1])
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("JVM stacktrace")]
    told = lines[0] if lines else type(error).__name__
    causes = _CAUSE.findall(text)
    if causes and causes[-1][1] not in told:
        kind, said = causes[-1]
        told = f"{told[: MOST // 2]} ({kind}: {said})"
    return told[:MOST]
