"""What a look into a topic shows."""

from __future__ import annotations

from qod_magics.kafka.reading import Record
from qod_magics.session.own_data import Peek, json_objects, plain

VALUES = [b'{"zone": 7}', b"[1]", b"7", b"", b"\xff\xfe", b'{"zone": 8, "fare": 1.5}', b'{"zone"']


def test_only_objects_have_a_schema() -> None:
    assert json_objects(VALUES) == ['{"zone": 7}', '{"zone": 8, "fare": 1.5}']


def test_a_topic_is_a_line_with_its_records_and_its_schema() -> None:
    newest = (Record(0, b'{"a":  1}\n', b"k"), Record(1, b"x" * 500), Record(1, b"\x00\x01"))
    lines = str(Peek("trips", 2, 1200, 8.25, newest, "a BIGINT", 3)).splitlines()
    assert lines[0].startswith("trips: 2 partitions, 1,200 records, 8.2/s")
    assert lines[1] == "  0: 'k': {\"a\": 1}"
    assert len(lines[2]) < 200
    assert lines[2].endswith("...")
    assert lines[3] == "  1: b'\\x00\\x01'"
    assert lines[4].startswith('--schema "a BIGINT"')
    assert str(Peek("trips", 1, 0, 0.0, (), "")).count("\n") == 0
    assert str(Peek("trips", 1, 1, 0.0, newest[:1], "", 1)) != str(Peek("trips", 1, 1, 0.0, newest[:1], ""))


def test_names_have_backticks_where_they_need_them() -> None:
    assert plain("`zone` bigint, `first name` string, `a``b` struct<`c`: int>") == (
        "zone bigint, `first name` string, `a``b` struct<c: int>"
    )
