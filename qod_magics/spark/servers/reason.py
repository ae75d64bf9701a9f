"""The most informative line of an error, whichever of Spark's layers raised it."""

from __future__ import annotations

import logging
import re

LOG = logging.getLogger(__name__)

#: Maximum length of the line, characters.
MOST = 400

_DETAILS = re.compile(r'^\s*details = "(.*)"$', re.MULTILINE)
_BEFORE_THE_LAST = re.compile(r"^.*last error: (?:UNKNOWN: )?(?:ipv[46]:\S+: )?")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+[.$])?(\w+): (\S.*)$", re.MULTILINE)
#: An error of a function in Python, which stands behind the files and lines that it passed.
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(rf"{re.escape(_TRACEBACK)}\n(?:[ \t].*\n|\n)*(\S.*)")


def reason(error: BaseException) -> str:
    """One line of at most `MOST` characters: for a failed connection gRPC's own details instead of its object's repr,
    for a failure on a server the message and its root cause, without stack traces of the JVM and of Python.

    The whole error is logged.
    """
    LOG.debug("an error of Spark", exc_info=error)
    text = str(error)
    if text.startswith("<_") and (details := _DETAILS.search(text)):
        text = _BEFORE_THE_LAST.sub("", details[1])
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("JVM stacktrace")]
    found = lines[0] if lines else type(error).__name__
    if found.endswith(_TRACEBACK) and (raised := _RAISED.search(text)):
        return f"{found.removesuffix(_TRACEBACK)}{raised[1]}"[:MOST]
    causes = _CAUSE.findall(text)
    if causes and causes[-1][1] not in found:
        kind, message = causes[-1]
        found = f"{found[: MOST // 2]} ({kind}: {message})"
    return found[:MOST]
