from __future__ import annotations

import json
import resource
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.controller import Recording, RecordingError, read
from qod_magics.controller.record import dumps


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_every_bit(value):
    assert json.loads(dumps({"x": value}))["x"] == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_becomes_null(value):
    line = {"a": {"b": [1.5, value]}, "c": (value,), "d": MappingProxyType({"e": value})}
    assert json.loads(dumps(line)) == {"a": {"b": [1.5, None]}, "c": [None], "d": {"e": None}}


def test_numbers_of_numpy_are_numbers():
    assert json.loads(dumps({"a": np.int64(3), "b": np.float32(0.5), "c": {"x"}})) == {"a": 3, "b": 0.5, "c": ["x"]}


def test_each_line_is_in_the_file_when_append_returns(tmp_path):
    path = tmp_path / "new" / "run.jsonl"
    recording = Recording(path)
    for number in range(3):
        recording.append({"cycle": number, "name": "Zürich\nx"})
        assert path.read_bytes().count(b"\n") == number + 1
    recording.close()
    assert [line["cycle"] for line in read(path)] == [0, 1, 2]


def test_a_recording_is_continued(tmp_path):
    path = tmp_path / "run.jsonl"
    for number in range(2):
        recording = Recording(path)
        recording.append({"cycle": number})
        recording.close()
    assert [line["cycle"] for line in read(path)] == [0, 1]


def test_its_file_stays_where_it_was_meant_to_be(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    recording = Recording("run.jsonl")
    recording.append({"cycle": 1})
    recording.close()
    monkeypatch.chdir("data")
    recording.append({"cycle": 2})
    recording.close()
    assert [line["cycle"] for line in read(tmp_path / "run.jsonl")] == [1, 2]
    monkeypatch.setenv("HOME", str(tmp_path / "data"))
    assert Recording("~/run.jsonl").path == tmp_path / "data" / "run.jsonl"


def test_a_line_that_its_writer_left_unfinished_does_not_swallow_the_next(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"cycle": 1}\n{"cyc')
    recording = Recording(path)
    recording.append({"cycle": 3})
    recording.close()
    assert path.read_text() == '{"cycle": 1}\n{"cyc\n{"cycle": 3}\n'


def test_a_line_that_does_not_fit_leaves_nothing_behind(tmp_path):
    path = tmp_path / "run.jsonl"
    recording = Recording(path)
    recording.append({"cycle": 1})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40, hard))
    try:
        with pytest.raises(OSError, match="large"):
            recording.append({"cycle": 2, "long": "x" * 100})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    recording.append({"cycle": 3})
    recording.close()
    assert [line["cycle"] for line in read(path)] == [1, 3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1}\n\n{"a": \n', "line 3"),
        ('{"a": 1}\n[1]\n', "line 2.*'[1]'"),
        ('{"a": 1}\n{"a": 1', "line 2"),
    ],
)
def test_a_line_that_can_not_be_read_is_named_after_the_good_ones(tmp_path, text, words):
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    lines = read(path)
    assert next(lines) == {"a": 1}
    with pytest.raises(RecordingError, match=words.replace("[", r"\[").replace("]", r"\]")) as caught:
        list(lines)
    assert "\n" not in str(caught.value)
