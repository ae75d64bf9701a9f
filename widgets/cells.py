"""For how long the kernel could have heard a view: while a cell runs, what views say may wait for its end."""

from __future__ import annotations

import time
from collections.abc import Callable


class Cells:
    """Follows the cells of a kernel as they begin and end.

    Args:
        now: the clock, seconds.

    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._running = 0  #: how many: one may run others
        self._ended = now()  #: when the last one did

    def __repr__(self) -> str:
        return "a cell runs" if self._running else f"no cell for {self.now() - self._ended:.0f} s"

    def begins(self) -> None:
        """A cell begins."""
        self._running += 1

    def ends(self) -> None:
        """A cell has ended, perhaps one that had begun before this was made."""
        self._running, self._ended = max(self._running - 1, 0), self.now()

    def idle_since(self, then: float) -> float:
        """For how many seconds there has been no cell, counted from `then` at the earliest."""
        return 0.0 if self._running else self.now() - max(then, self._ended)

    def follow(self) -> Cells:
        """Follow the cells of this process, if it is a kernel."""
        from IPython import get_ipython

        if (shell := get_ipython()) is not None:
            shell.events.register("pre_execute", self.begins)
            shell.events.register("post_execute", self.ends)
        return self
