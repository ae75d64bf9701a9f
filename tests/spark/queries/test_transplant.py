"""Checkpoints with state, copied to go on at other offsets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.spark.queries.checkpoints import (
    Left,
    inherit,
    shuffle_partitions,
    transplant,
    why_not_divided,
    why_not_transplanted,
)
from tests.texts import tells

BATCH = '{"batchWatermarkMs":5000,"batchTimestampMs":7000,"conf":{}}'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Of a query that has ended batch 8, and begun batch 9; it has read up to offsets 40 and 50."""
    made = tmp_path / "before"
    for name in ("offsets", "commits", "state/0/0", "sources/0"):
        (made / name).mkdir(parents=True)
    for batch, offset in ((7, 30), (8, 40), (9, 60)):
        log = f'v1\n{BATCH}\n{{"stream":{{"0":{offset},"1":{offset + 10}}}}}'
        (made / "offsets" / str(batch)).write_text(log)
        (made / "offsets" / f".{batch}.crc").write_text("checksum")
    for batch in (7, 8):
        (made / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":5000}')
    (made / "state/0/0/9.delta").write_text("state")
    (made / "metadata").write_text('{"id":"q"}')
    return made


AT = {"stream": {0: 40, 1: 50}}


def test_the_last_ended_batch_goes_on_at_other_offsets(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "after"
    assert transplant(str(source), str(target), AT, {"topic": {0: 1000, 1: 7}}) is True
    there = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert there == ["commits/7", "commits/8", "metadata", "offsets/7", "offsets/8", "state/0/0/9.delta"]
    assert (target / "offsets/7").read_text().splitlines()[2] == '{"topic":{"0":1000,"1":7}}'
    version, batch, offsets = (target / "offsets/8").read_text().splitlines()
    assert (version, batch, json.loads(offsets)) == ("v1", BATCH, {"topic": {"0": 1000, "1": 7}})
    assert (target / "state/0/0/9.delta").read_text() == "state"
    assert (source / "offsets/8").read_text().splitlines()[2] == '{"stream":{"0":40,"1":50}}'  # stays as it is


def test_each_of_several_topics_is_a_source(source: Path, tmp_path: Path) -> None:
    transplant(str(source), str(tmp_path / "after"), AT, {"west": {0: 5}, "east": {0: 6}})
    lines = (tmp_path / "after/offsets/8").read_text().splitlines()
    assert lines[2:] == ['{"west":{"0":5}}', '{"east":{"0":6}}']


def test_the_same_offsets_are_left_alone(source: Path, tmp_path: Path) -> None:
    transplant(str(source), str(tmp_path / "after"), AT)
    for batch in (7, 8):
        assert (tmp_path / f"after/offsets/{batch}").read_text() == (source / f"offsets/{batch}").read_text()


@pytest.mark.parametrize("at", [{"stream": {0: 40, 1: 51}}, {"stream": {0: 40}}, {"other": {0: 40, 1: 50}}])
def test_other_offsets_than_those_booked_are_refused(
    source: Path, tmp_path: Path, at: dict[str, dict[int, int]]
) -> None:
    with pytest.raises(TaskManagerError) as caught:
        transplant(str(source), str(tmp_path / "after"), at, {"topic": {0: 1}})
    assert "\n" not in str(caught.value)


def test_what_can_t_be_carried_is_refused_in_one_line(source: Path, tmp_path: Path) -> None:
    (source / "offsets/8").write_text(f'v1\n{BATCH}\n{{"stream":{{"0":40,"1":50}}}}\n{{"more":{{"0":1}}}}')
    both = {**AT, "more": {0: 1}}
    transplant(str(source), str(tmp_path / "same"), both)
    with pytest.raises(TaskManagerError, match="2"):
        transplant(str(source), str(tmp_path / "after"), both, {"topic": {0: 1}})
    (source / "offsets/8").write_text(f"v2\n{BATCH}\n{{}}")
    with pytest.raises(TaskManagerError, match="version v2"):
        transplant(str(source), str(tmp_path / "other"), AT)
    with pytest.raises(TaskManagerError, match="s3a://bucket"):
        transplant("s3a://bucket/q", str(tmp_path / "after"), AT)
    assert "s3a://bucket" in why_not_transplanted("s3a://bucket")
    assert why_not_transplanted(str(tmp_path)) == ""


def test_without_an_ended_batch_there_is_no_state(tmp_path: Path) -> None:
    assert transplant(str(tmp_path / "never"), str(tmp_path / "after"), AT) is False
    assert not (tmp_path / "after").exists()


# -- the state of several ----------------------------------------------------------------------------------------------


class Assigned:
    """Notes what state was assigned."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self.seen: list[str] = []  #: files of the target's state by then

    def __call__(self, target: str, sources: Sequence[str]) -> None:
        self.calls.append((target, list(sources)))
        self.seen = sorted(path.name for path in Path(target, "state").rglob("*") if path.is_file())


def other(tmp_path: Path, watermark: int) -> Path:
    """Of a query that has ended batch 3, at offset 8 of another partition."""
    made = tmp_path / "other"
    for name in ("offsets", "commits", "state/0/0"):
        (made / name).mkdir(parents=True)
    batch = json.dumps({"batchWatermarkMs": watermark - 1000, "batchTimestampMs": 1, "conf": {}})
    (made / "offsets/3").write_text(f'v1\n{batch}\n{{"stream":{{"2":8}}}}')
    (made / "commits/3").write_text(f'v1\n{{"nextBatchWatermarkMs":{watermark}}}')
    (made / "metadata").write_text('{"id":"q"}')
    return made


def test_one_goes_on_with_the_state_of_several_as_one_batch_more(source: Path, tmp_path: Path) -> None:
    second, target, assigned = other(tmp_path, 3000), tmp_path / "after", Assigned()
    (source / "state/0/0/10.changelog").write_text("of batch 9, which has not ended")
    left = [Left(str(source), AT), Left(str(second), {"stream": {2: 8}})]
    assert inherit(left, str(target), {"stream": {0: 40, 2: 8}}, assigned) is True
    assert assigned.calls == [(str(target), [f"8 {source}", f"3 {second}"])]
    assert assigned.seen == ["9.delta"]
    _, batch, offsets = (target / "offsets/9").read_text().splitlines()
    assert json.loads(offsets) == {"stream": {"0": 40, "2": 8}}
    assert json.loads(batch) == {"batchWatermarkMs": 2000, "batchTimestampMs": 7000, "conf": {}}
    assert json.loads((target / "commits/9").read_text().splitlines()[1]) == {"nextBatchWatermarkMs": 3000}
    assert (target / "offsets/8").exists()  # Spark asks for it
    assert json.loads((target / "metadata").read_text())["id"] != "q"  # two queries of one id can't run
    assert (source / "state/0/0/10.changelog").exists()


def test_who_has_not_begun_leaves_no_state(source: Path, tmp_path: Path) -> None:
    assigned, never = Assigned(), Left(str(tmp_path / "never"), {"stream": {2: 0}})
    assert inherit([never], str(tmp_path / "none"), {"stream": {2: 0}}, assigned) is False
    assert assigned.calls == []
    assert inherit([never, Left(str(source), AT)], str(tmp_path / "after"), {"stream": {0: 40}}, assigned) is True
    assert assigned.calls == [(str(tmp_path / "after"), [f"8 {source}"])]


def test_rows_of_a_first_batch_that_was_interrupted_are_not_late(source: Path, tmp_path: Path) -> None:
    begun, target = tmp_path / "begun", tmp_path / "after"
    (begun / "offsets").mkdir(parents=True)
    (begun / "offsets/0").write_text(f'v1\n{BATCH}\n{{"stream":{{"2":8}}}}')
    left = [Left(str(source), AT), Left(str(begun), {"stream": {2: 0}})]
    assert inherit(left, str(target), {"stream": {0: 40, 2: 0}}, Assigned()) is True
    assert json.loads((target / "offsets/9").read_text().splitlines()[1])["batchWatermarkMs"] == 0
    assert json.loads((target / "commits/9").read_text().splitlines()[1]) == {"nextBatchWatermarkMs": 0}
    inherit(
        [left[0], Left(str(tmp_path / "never"), left[1].at)], str(tmp_path / "other"), {"stream": {0: 40}}, Assigned()
    )
    assert json.loads((tmp_path / "other/commits/9").read_text().splitlines()[1]) == {"nextBatchWatermarkMs": 5000}


def shuffled(checkpoint: Path, partitions: int) -> None:
    """Have a checkpoint's query shuffle into so many partitions."""
    for log in (checkpoint / "offsets").glob("[0-9]*"):
        log.write_text(log.read_text().replace("{}", f'{{"spark.sql.shuffle.partitions":"{partitions}"}}', 1))


def test_the_shuffle_partitions_of_a_state_are_in_its_checkpoint(source: Path, tmp_path: Path) -> None:
    second = other(tmp_path, 3000)
    assert shuffle_partitions(str(source)) is None, "it says nothing of them"
    shuffled(source, 8)
    assert shuffle_partitions(str(source)) == 8
    assert [shuffle_partitions(place) for place in ("s3a://bucket/q", str(tmp_path / "never"))] == [None, None]
    places = [str(source), str(second), str(tmp_path / "never")]
    shuffled(second, 8)
    assert why_not_divided(places) == ""
    transplant(str(source), str(tmp_path / "after"), AT)
    assert shuffle_partitions(str(tmp_path / "after")) == 8


@pytest.mark.parametrize("what", ["other offsets", "real-time mode", "no batch there", "shuffle partitions"])
def test_state_of_several_that_does_not_fit_is_refused_before_it_is_written(
    source: Path, tmp_path: Path, what: str
) -> None:
    second, assigned = other(tmp_path, 9000), Assigned()
    if what == "real-time mode":
        ids = '"stateUniqueIds":{"0":[["a"]]}'
        (second / "commits/3").write_text(f'v1\n{{"nextBatchWatermarkMs":1,{ids}}}')
    elif what == "no batch there":
        (second / "offsets/3").unlink()
    elif what == "shuffle partitions":
        shuffled(source, 8)
        shuffled(second, 2)
        assert tells(why_not_divided([str(source), str(second)]), "2 and 8")
    at = {"stream": {2: 9 if what == "other offsets" else 8}}
    with pytest.raises(TaskManagerError) as caught:
        inherit([Left(str(source), AT), Left(str(second), at)], str(tmp_path / "after"), {"stream": {0: 40}}, assigned)
    assert "\n" not in str(caught.value)
    assert assigned.calls == []
