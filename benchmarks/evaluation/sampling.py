"""A context that samples on a thread of its own while it lasts."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

EVERY_S = 0.25
COLLECT_EVERY = round(1 / EVERY_S)  #: looks


class Sampling(ABC):
    """Looks every quarter of a second, and collects every second, at the start and at the end. An error on the thread
    is raised at the end."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__.lower(), daemon=True)
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        self.look()
        self.collect()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(10.0)
        if kind is None and self._error is not None:
            raise self._error

    @abstractmethod
    def look(self) -> None:
        """Sample what changes quickly."""

    @abstractmethod
    def collect(self) -> None:
        """Sample what changes slowly."""

    def _run(self) -> None:
        turn = 0
        try:
            while not self._over.wait(EVERY_S):
                self.look()
                turn += 1
                if turn % COLLECT_EVERY == 0:
                    self.collect()
            self.collect()
        except Exception as error:
            self._error = error
