"""Why Spark's real-time mode refuses a plan, in few words."""

from __future__ import annotations

import re

_CLASS = re.compile(r"\borg\.apache\.spark\.[\w.$]*?(\w+)(?=[\s,]|\.?$|\. )")
_SUFFIX = re.compile(r"(Exec|MicroBatchStream|Stream)$")
_KINDS = (
    (re.compile(r"Python|Pandas|InArrow"), "Python functions"),
    (re.compile(r"SymmetricHashJoin"), "joins of two streams"),
)
#: Spark's error class: the stages of a real-time batch run at the same time, with one task per partition.
TOO_FEW_SLOTS = "CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT"
#: Spark's messages with one of these words name what can't run.
_NAMES_WHAT = re.compile(r"operator\(s\)|sink|input stream", re.IGNORECASE)
#: Spark's error classes, what sources say of options of theirs, and what Python says of a client too old for the mode.
_REFUSAL = re.compile(
    rf"{TOO_FEW_SLOTS}|STREAMING_REAL_TIME_MODE|not (?:supported in|compatible with) (?i:real[- ]time mode)|"
    "unexpected keyword argument 'realTime'"
)


def not_realtime(why: str, kind: str = "local") -> str:
    """One clause for status and errors; the message unchanged if it names no operator, sink or source. `kind` is the
    task manager's: what gives it more slots."""
    if TOO_FEW_SLOTS in why:
        more = "--slots" if kind == "local" else "as many as its Spark has cores, or N with the master local[N]"
        return f"its tasks run all at once, one per partition, and too few slots are free ({more})"
    names = _CLASS.findall(why) if _NAMES_WHAT.search(why) else []
    if not names:
        return why
    kinds = [next((kind for known, kind in _KINDS if known.search(name)), _SUFFIX.sub("", name)) for name in names]
    return f"Spark's real-time mode does not take {' or '.join(dict.fromkeys(kinds))}"


def refuses_realtime(error: BaseException | str) -> bool:
    """Whether Spark or a source says that real-time mode can't run this plan (or the client does not know that mode),
    or that there are too few slots for its tasks, which run all at once. A name in an error, as of a topic, says
    nothing."""
    return _REFUSAL.search(str(error)) is not None
