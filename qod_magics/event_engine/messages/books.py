"""The books of an engine: where each message is. Nothing is lost, nothing runs twice."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Books:
    """Counts of messages: `made = held + in_flight + waiting + running + done`, at each moment.

    Messages between dispatchers are done when they arrive, all others when they have run.
    """

    made: int = 0
    held: int = 0  #: made, and not yet sent: a dispatcher waits for replies
    in_flight: int = 0
    waiting: int = 0  #: arrived, and not running
    running: int = 0
    done: int = 0

    @property
    def left(self) -> int:
        """Messages that are not done."""
        return self.held + self.in_flight + self.waiting + self.running

    def check(self) -> None:
        """Raise AssertionError if the counts don't add up."""
        counts = asdict(self)
        assert min(counts.values()) >= 0, f"negative counts: {counts}"
        assert self.made == self.left + self.done, f"messages were lost or run twice: {counts}"
