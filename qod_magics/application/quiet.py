"""Keeps pyspark from printing what is said in one line anyway."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: pyspark logs errors of analysis here, each with the whole stack of the JVM, on standard error: in the user's cell
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class _Hush(threading.local, logging.Filter):
    """Lets no record pass from a thread that is inside `analysis_errors_unprinted`."""

    depth = 0

    def filter(self, record: logging.LogRecord) -> bool:
        return self.depth == 0


_hush = _Hush()


@contextmanager
def analysis_errors_unprinted() -> Iterator[None]:
    """While open, pyspark raises errors of analysis in this thread without printing them too."""
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        PySparkLogger.getLogger(name).addFilter(_hush)  # a filter that is there is not added again
    _hush.depth += 1
    try:
        yield
    finally:
        _hush.depth -= 1
