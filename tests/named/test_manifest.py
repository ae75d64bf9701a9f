"""Manifests: what is written is read again, by later releases, too; what can't be read is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qod_magics.errors import SetupError, UsageProblem
from qod_magics.named.manifest import (
    FILE,
    VERSION,
    KeptFeed,
    KeptRun,
    KeptStream,
    KeptTask,
    Manifest,
    decoded,
    encoded,
    read,
    write,
)
from tests.raising import breaks

KEPT = sorted(Path(__file__).with_name("manifests").glob("*.json"))  #: one of each version


def manifest(**fields: Any) -> Manifest:
    feed = KeptFeed("trips", 2, {0: 5, 1: -3}, {0: 70, 1: 80}, [[0], [1]], processed=100, dropped=40, again=7)
    task = KeptTask(
        streams=["trips", "zones"],
        recipes="a1",
        settings="b2",
        columns="c3",
        feeds={"zones": feed},
        runs={"zones.1": KeptRun("zones/2/1", "trips-00ff00-2-1", begun=True)},
        edges=[("trips", "zones")],
        own_rows=(3, 4),
    )
    stream = KeptStream("d4", topic="trips", restrictions={"min_accuracy": 0.4})
    return Manifest(
        VERSION, "trips", "trips-00ff00", streams={"zones": stream}, tasks={"zones": task}, learned={"a": 1}, **fields
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    write(tmp_path, manifest())
    assert read(tmp_path) == manifest()
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_it_is_for_people_too() -> None:
    text = encoded(manifest()).decode()
    assert len(text.splitlines()) > 20
    assert json.loads(text)["tasks"]["zones"]["feeds"]["zones"]["position"] == {"0": 70, "1": 80}


def test_a_write_that_fails_leaves_the_manifest_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, manifest())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SetupError):
        write(tmp_path, manifest(epoch=9))
    assert read(tmp_path) == manifest()


def test_that_of_a_later_release_is_refused_whatever_else_it_holds() -> None:
    later = json.dumps({"version": VERSION + 1, "tasks": ["of another form"]}).encode()
    with pytest.raises(UsageProblem, check=breaks("version", value=VERSION + 1)):
        decoded(later)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": "one"}', '{"version": 1}'])
def test_a_damaged_one_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem, check=breaks("readable")):
        decoded(text.encode())


def test_fields_of_later_releases_of_the_same_version_are_passed_over() -> None:
    made = json.loads(encoded(manifest()))
    made["colour"] = made["tasks"]["zones"]["colour"] = "blue"
    assert decoded(json.dumps(made).encode()) == manifest()


def test_there_is_a_kept_manifest_of_each_version() -> None:
    assert [json.loads(path.read_bytes())["version"] for path in KEPT] == list(range(1, VERSION + 1))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_those_that_earlier_releases_wrote_are_read_whole(path: Path) -> None:
    found = decoded(path.read_bytes())
    assert found.tasks.keys() == {"counts"}
    task = found.tasks["counts"]
    assert (task.streams, task.keeps_state, task.has_begun) == (["src", "counts"], True, True)
    assert task.runs["counts.1"].checkpoint == "counts/1/1"
    assert task.feeds["counts"].position.keys() == {0, 1}
    assert found.learned is not None
    assert json.loads(encoded(found)) == json.loads(path.read_bytes()), "something is not read"
