"""Where a first run of a stream begins to read: at an end of the source, a time, a consumer group, or given offsets."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from qod_magics.errors import ApplicationError

#: The ends of a source, which every kind of source knows.
LATEST, EARLIEST = "latest", "earliest"
ENDS = (LATEST, EARLIEST)
#: All forms, as help and messages show them.
FORMS = "latest, earliest, -15m, 2026-01-31T10:00, group:NAME or '{\"0\": 12}'"

_GROUP = "group:"
_AGO = re.compile(r"-(\d+(?:\.\d+)?)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class Start:
    """A parsed starting point: one of these is given."""

    end: str = ""  #: one of `ENDS`
    ago: timedelta | None = None  #: before the moment at which the first run begins
    at: datetime | None = None
    group: str = ""  #: a consumer group, whose committed offsets are taken
    offsets: dict[int, int] | None = None  #: by partition

    def instant_ms(self, now: datetime) -> int | None:
        """Return the time from which rows are read, in milliseconds since 1970; None: it is no time."""
        at = self.at if self.ago is None else now - self.ago
        return None if at is None else int(at.timestamp() * 1000)


def parse_start(text: str) -> Start:
    """Return the starting point of a text. A time without an offset is in UTC. Raises ApplicationError."""
    if text in ENDS:
        return Start(end=text)
    if ago := _AGO.fullmatch(text):
        try:
            start = Start(ago=timedelta(**{_UNITS[ago[2]]: float(ago[1])}))
            start.instant_ms(datetime.now(UTC))
            return start
        except OverflowError:
            raise _wrong(text) from None
    if text.startswith(_GROUP) and len(text) > len(_GROUP):
        return Start(group=text.removeprefix(_GROUP))
    if text.startswith("{"):
        return Start(offsets=_offsets(text))
    try:
        at = datetime.fromisoformat(text)
        return Start(at=at if at.tzinfo is not None else at.replace(tzinfo=UTC))
    except (TypeError, ValueError):
        raise _wrong(text) from None


def check_start(text: str) -> str:
    """Return the text if it is a starting point. Raises ApplicationError."""
    parse_start(text)
    return text


def _offsets(text: str) -> dict[int, int]:
    try:
        found = {int(partition): offset for partition, offset in json.loads(text).items()}
    except ValueError:
        raise _wrong(text) from None
    if not found or not all(type(offset) is int and offset >= 0 for offset in found.values()) or min(found) < 0:
        raise _wrong(text)
    return found


def _wrong(text: str) -> ApplicationError:
    return ApplicationError(f"--starting must be {FORMS}, got {text!r}", value=text, rule="starting point")
