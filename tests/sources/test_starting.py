"""Where a first run begins to read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from qod_magics.application.streams.topic_input import TopicInput
from qod_magics.errors import ApplicationError
from qod_magics.sources.source import Start, parse_start
from tests.raising import breaks

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("latest", Start(end="latest")),
        ("earliest", Start(end="earliest")),
        ("-15m", Start(ago=timedelta(minutes=15))),
        ("-1.5h", Start(ago=timedelta(minutes=90))),
        ("-7d", Start(ago=timedelta(days=7))),
        ("2026-01-31", Start(at=datetime(2026, 1, 31, tzinfo=UTC))),
        ("2026-01-31T10:00", Start(at=datetime(2026, 1, 31, 10, tzinfo=UTC))),
        ("2026-01-31T10:00+01:00", Start(at=datetime(2026, 1, 31, 9, tzinfo=UTC))),
        ("group:billing", Start(group="billing")),
        ('{"0": 12, "1": 0}', Start(offsets={0: 12, 1: 0})),
    ],
)
def test_a_text_is_a_starting_point(text: str, start: Start) -> None:
    assert parse_start(text) == start
    assert TopicInput("trips", "id INT", text).starting == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "newest", "now", "15m", "-15", "-15w", "-999999999999d", "-1000000d", "2026-13-01", "group:", "[1]"),
        *("{", "{}", '{"a": 1}', '{"0": -1}', '{"0": 1.5}', '{"0": true}', '{"-1": 1}'),
    ],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ApplicationError, check=breaks("starting point", value=text)):
        parse_start(text)
    with pytest.raises(ApplicationError, check=breaks("starting point", value=text)):
        TopicInput("trips", "id INT", text)


def test_files_begin_at_an_end() -> None:
    assert TopicInput("json:/data", "id INT", "earliest").starting == "earliest"
    with pytest.raises(ApplicationError, check=breaks(option="--starting")):
        TopicInput("json:/data", "id INT", "-15m")


def test_a_time_is_an_instant() -> None:
    assert parse_start("-15m").instant_ms(NOW) == (NOW.timestamp() - 900) * 1000
    assert parse_start("2026-01-31T13:00+01:00").instant_ms(NOW) == NOW.timestamp() * 1000
    assert parse_start("latest").instant_ms(NOW) is None
