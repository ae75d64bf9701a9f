"""Logging to the notebook: nothing is shown until `%config QodMagics.log_level` asks for it."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("qod_magics")
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Shown(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard error."""


def log_from(level: str) -> None:
    """Write records of this package from a level on to standard error; with "" none.

    A record also goes to the handlers that the user gave the root logger, as any library's does.
    """
    for handler in [each for each in LOGGER.handlers if isinstance(each, _Shown)]:
        LOGGER.removeHandler(handler)
    LOGGER.setLevel(level or logging.NOTSET)
    if level:
        handler = _Shown()
        handler.setFormatter(logging.Formatter(FORMAT))
        LOGGER.addHandler(handler)
