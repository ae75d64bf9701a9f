"""Objects from JSON, with errors that name the field."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import pytest

from qod_magics.data.fields import read_json, read_object
from qod_magics.errors import ScenarioError
from tests.raising import breaks


@dataclass(frozen=True)
class Disk:
    """Fields of all kinds."""

    name: str
    bytes: int = 1
    seek_ms: float = 0.5
    limit: int | None = 3
    is_full: bool = False
    owner: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.bytes == 13:
            raise ValueError("bytes must not be 13")


def test_an_object_becomes_a_dataclass_with_its_defaults() -> None:
    assert read_object(Disk, {"name": "a"}, "disk") == Disk("a")
    value = {"name": "b", "bytes": 0, "seek_ms": 2, "limit": None, "is_full": True}
    found = read_object(Disk, value, "disk", owner=("me",))
    assert found == Disk("b", 0, 2.0, None, True, ("me",))
    assert isinstance(found.seek_ms, float)
    assert read_object(Disk, {"name": "c", "seek_ms": "inf"}, "disk").seek_ms == inf


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": None}, "disk.name is None: it must be a non-empty string"),
        ({"bytes": 1.5}, "disk.bytes is 1.5: it must be a whole number"),
        ({"bytes": None}, "disk.bytes is None"),
        ({"seek_ms": -1}, "disk.seek_ms is -1: it must be 0 or more"),
        ({"seek_ms": True}, "disk.seek_ms is True: it must be a number"),
        ({"is_full": 1}, "disk.is_full is 1: it must be true or false"),
        ({"size": 1}, "disk has an unknown field 'size'"),
        ({"bytes": 13}, "disk: bytes must not be 13"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_object(Disk, {"name": "a", **changes}, "disk")
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_a_missing_field_and_what_is_no_object_are_named() -> None:
    with pytest.raises(ScenarioError, check=breaks("present", name="name")):
        read_object(Disk, {}, "disk")
    with pytest.raises(ScenarioError, check=breaks("object", name="disk")):
        read_object(Disk, [], "disk")


def test_a_file_that_is_missing_or_is_not_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    with pytest.raises(ScenarioError, check=breaks("readable")):
        read_json(path)
    for text in ("{", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(ScenarioError, check=breaks("JSON")):
            read_json(path)
    path.write_bytes(b'"\xff"')
    with pytest.raises(ScenarioError, check=breaks("JSON")):
        read_json(path)
    path.write_text('{"a": [1]}')
    assert read_json(path) == {"a": [1]}
