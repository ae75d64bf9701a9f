"""Keeps pyspark from printing errors that are shown in one line anyway."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: pyspark logs analysis errors here, with the whole JVM stack trace, on standard error: in the user's cell
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class _Hush(threading.local, logging.Filter):
    """Drops the records of threads inside `analysis_errors_unprinted`."""

    depth = 0

    def filter(self, record: logging.LogRecord) -> bool:
        return self.depth == 0


_hush = _Hush()


@contextmanager
def analysis_errors_unprinted() -> Iterator[None]:
    """While open, pyspark raises analysis errors in this thread without printing them."""
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        PySparkLogger.getLogger(name).addFilter(_hush)  # an existing filter is not added again
    _hush.depth += 1
    try:
        yield
    finally:
        _hush.depth -= 1
