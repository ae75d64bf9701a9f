"""Rows that a stream between tasks has twice: a batch of their sender did not end, and was run again.

Delivery to Kafka is at least once. A batch that a kill, a failure or a stop interrupts has written some of its rows;
the next run reads the same input, and writes them once more. The first ones are those that an instance wrote after its
last batch was committed and before its next run began. So each run that has ended leaves a stretch of time, and a look
at the topic counts the rows of that instance in it. Records have the time at which they were sent; all instances but
the first of a task put their number into a header (`plans.shedder.sent_by`).

Pure: times are milliseconds since 1970, instances are numbered from 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

#: So long after its end, a look at a stretch finds all records: a broker under load may take some late.
SETTLED_MS = 3_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """Time in which an instance has sent rows in a batch that did not end."""

    sender: int
    after: int  #: when the batch before was committed
    until: int  #: when the instance did not run any more

    def holds(self, sender: int, at: int) -> bool:
        """Return whether a record of this instance and time is one of these rows."""
        return sender == self.sender and self.after < at <= self.until


@dataclass(slots=True)
class Repeats:
    """The rows that a stream has twice, as far as they are counted, and where to look for others."""

    rows: int = 0
    known_until: dict[int, int] = field(default_factory=dict)  #: by instance: rows sent before are counted, or listed
    open: list[Stretch] = field(default_factory=list)  #: not looked at yet

    def run_ended(self, sender: int, committed: int | None, now: int) -> None:
        """Note that no run of an instance is under way.

        Args:
            sender: the instance.
            committed: when its last batch was committed, or its checkpoint was made; None: it has not run yet.
            now: the time.

        """
        known = self.known_until.get(sender, 0)
        self.known_until[sender] = max(now, known)
        if committed is None or max(committed, known) >= now:
            return
        last = next((each for each in reversed(self.open) if each.sender == sender), None)
        if last is not None and committed <= last.until == known:  # no run has ended a batch in between
            self.open.remove(last)
            known = last.after
        self.open.append(Stretch(sender, max(committed, known), now))

    def due(self, now: int) -> list[Stretch]:
        """Return the stretches at which to look now."""
        return [each for each in self.open if each.until + SETTLED_MS <= now]

    def counted(self, looked: Iterable[Stretch], rows: int) -> None:
        """Note how many rows a look at these stretches has found."""
        done = set(looked)
        self.open = [each for each in self.open if each not in done]
        self.rows += rows


def repeats_text(rows: int, sender: str) -> str:
    """Such as: 3 rows are there twice: batches of src did not end, and ran again."""
    return (
        f"{rows:,} {'row is' if rows == 1 else 'rows are'} there twice: batches of {sender} did not end, and ran again"
    )


def again_text(rows: int) -> str:
    """Such as: 3 rows were read twice, in batches that did not end."""
    return f"{rows:,} {'row was' if rows == 1 else 'rows were'} read twice, in batches that did not end"
