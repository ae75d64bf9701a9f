"""Kinds of sources: each has what the runtime asks for, and is known by its name only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import qod_magics
from qod_magics.errors import ApplicationError
from qod_magics.sources.registry import KINDS, Sources, checked_name, class_of, described, kind_of, source_name
from qod_magics.sources.source import OPTIONS, Context, Source, is_topic, kind_and_place
from tests.kafka.fakes import FakeKafka

#: A source of each kind, as a cell names it.
GIVEN = {"kafka": "kafka:trips", "json": "json:in", "csv": "csv:in/*.csv", "parquet": "parquet:/in", "rate": "rate"}
GIVEN |= {"delta": "delta:/in"}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_what_is_asked_for(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = source_name(GIVEN[kind])
    assert checked_name(name) == name, "a name stays as it is"
    assert (kind_and_place(name)[0], is_topic(name)) == (kind, kind == "kafka")
    found: Any = class_of(kind)
    assert kind_of(name) is found
    stated = {each for each in vars(Source) if not each.startswith("_")} | set(vars(Source)["__annotations__"])
    assert [each for each in stated if not hasattr(found, each)] == []
    assert found.payload in ("json", "csv", "columns")
    assert found.options <= OPTIONS
    assert described(name).startswith(found.unit)
    made = Sources(Context(FakeKafka({"trips": 3}), tmp_path))
    assert made.of(name) is made.of(name)
    assert isinstance(made.of(name), found)


@pytest.mark.parametrize("text", ["jsn:in", "trips", "", ":", "kafka:", "kafka:a b", "s3a://bucket"])
def test_others_are_refused(text: str) -> None:
    with pytest.raises(ApplicationError) as caught:
        source_name(text)
    assert "\n" not in str(caught.value)


def test_ends_of_several_kinds_are_asked_together(tmp_path: Path) -> None:
    kafka = FakeKafka()
    kafka.create("trips", end=7)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("{}\n{}")
    names = ["trips", f"json:{tmp_path}/in", "rate:10", f"csv:{tmp_path}/none", "gone"]
    found, missing = Sources(Context(kafka, tmp_path)).ends(names)
    assert (found["trips"], found[names[1]], found.keys()) == ({0: 7}, {0: 2}, set(names[:3]))
    assert missing.keys() == set(names[3:])


def test_only_the_registry_knows_the_modules_of_kinds() -> None:
    root = Path(qod_magics.__file__).parent
    modules = "|".join({line.partition(":")[0].rpartition(".")[2] for _, line in KINDS.values()})
    named = re.compile(rf"(?:from|import) qod_magics\.sources(?:\.| import )(?:{modules})\b")
    others = [path for path in root.rglob("*.py") if path.parent != root / "sources"]  # a kind may build on another
    assert [path for path in others if named.search(path.read_text("utf-8"))] == []
