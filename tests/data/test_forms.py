"""Forms from JSON, with errors that name the field and say what it must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from qod_magics.data.forms import Count, Form, Name, NotNegative, Positive, Whole, read, read_json
from qod_magics.errors import ScenarioError
from tests.raising import breaks
from tests.texts import tells


class Slot(Form, frozen=True):
    """A field within a list."""

    at: Whole
    kind: Literal["left", "right"] = "left"


class Disk(Form, frozen=True):
    """Fields of all kinds."""

    name: Name
    bytes: Count = 1
    seek_ms: NotNegative = 0.5
    rate: Positive | None = 3.0
    is_full: bool = False
    slots: tuple[Slot, ...] = ()
    owners: dict[str, dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        if self.bytes == 13:
            raise ValueError("bytes must not be 13")


def test_an_object_becomes_a_form_with_its_defaults() -> None:
    assert read(Disk, {"name": "a"}, "disk") == Disk("a")
    value = {"name": "b", "bytes": 2, "seek_ms": 2, "rate": None, "is_full": True, "slots": [{"at": 0}]}
    found = read(Disk, value, "disk")
    assert found == Disk("b", 2, 2.0, None, True, (Slot(0),))
    assert isinstance(found.seek_ms, float)


@pytest.mark.parametrize(
    ("changes", "name", "must"),
    [
        ({"name": None}, "disk.name", "be a non-empty string"),
        ({"name": ""}, "disk.name", "be a non-empty string"),
        ({"bytes": 1.5}, "disk.bytes", "be a whole number"),
        ({"bytes": 0}, "disk.bytes", "be a whole number of 1 or more"),
        ({"seek_ms": -1}, "disk.seek_ms", "be 0 or more"),
        ({"seek_ms": True}, "disk.seek_ms", "be a number"),
        ({"seek_ms": float("inf")}, "disk.seek_ms", "be a finite number"),
        ({"seek_ms": 10**400}, "disk.seek_ms", "be a finite number"),
        ({"rate": 0}, "disk.rate", "be above 0"),
        ({"rate": "x"}, "disk.rate", "be a number, or null"),
        ({"is_full": 1}, "disk.is_full", "be true or false"),
        ({"slots": 1}, "disk.slots", "be a list"),
        ({"slots": [{"at": 0}, {"at": -1}]}, "disk.slots[1].at", "be a whole number of 0 or more"),
        ({"slots": [{"at": 0, "kind": "rigth"}]}, "disk.slots[0].kind", "be one of left, right"),
        ({"owners": {"me": 3}}, "disk.owners.me", "be an object"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(changes: dict[str, Any], name: str, must: str) -> None:
    with pytest.raises(ScenarioError, check=breaks(name=name)) as caught:
        read(Disk, {"name": "a", **changes}, "disk")
    assert str(caught.value).startswith(f"{name} must {must}, got ")


@pytest.mark.parametrize(
    ("value", "rule", "name"),
    [
        ({}, "present", "name"),
        ([], "object", "disk"),
        ({"name": "a", "slots": [3]}, "object", "disk.slots[0]"),
        ({"name": "a", "size": 1}, "known", "size"),
        ({"name": "a", "slots": [{"at": 1, "knid": "left"}]}, "known", "disk.slots[0].knid"),
        ({"name": "a", "bytes": 13}, "own", "disk"),
    ],
)
def test_fields_that_are_missing_unknown_or_at_odds_are_named(value: Any, rule: str | None, name: str) -> None:
    with pytest.raises(ScenarioError, check=breaks(rule, name=name)):
        read(Disk, value, "disk")


def test_a_name_that_is_nearly_right_is_suggested() -> None:
    with pytest.raises(ScenarioError) as caught:
        read(Disk, {"name": "a", "slots": [{"at": 1, "knid": "left"}]}, "disk")
    assert tells(caught.value, "disk.slots[0]", "'knid'", "'kind'")


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
