from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.spark.queries.checkpoints import (
    check_shared,
    checkpoint_root,
    is_new,
    local_path,
    read_topics,
    with_topics,
)
from tests.raising import breaks


@pytest.mark.parametrize("url", ["file:///data/cp", "hdfs://namenode:8020/cp", "s3a://bucket/cp", "file:/data/cp"])
def test_urls_stay_as_they_are(url: str) -> None:
    assert checkpoint_root(url) == url


def test_a_path_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert checkpoint_root("cp/run") == f"{tmp_path}/cp/run"
    assert checkpoint_root(Path("cp")) == f"{tmp_path}/cp"
    assert checkpoint_root("~/cp") == f"{tmp_path}/home/cp"


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("/data/cp", "/data/cp"),
        ("file:///data/my%20cp", "/data/my%20cp"),
        ("file:/data/cp", "/data/cp"),
        ("file://localhost/data/cp", "/data/cp"),
    ],
)
def test_what_lies_on_this_machine_is_known(root: str, path: str) -> None:
    assert local_path(root) == Path(path)


@pytest.mark.parametrize("root", ["hdfs://namenode/cp", "s3a://bucket/cp", "file://other/cp"])
def test_what_lies_elsewhere_is_not_touched(root: str) -> None:
    assert local_path(root) is None


class Cluster:
    """A session whose executors write files of which `back` come back; how many were written is in `written`."""

    def __init__(self, master: str, back: Callable[[int], int]) -> None:
        self.conf = SimpleNamespace(get={"spark.master": master}.get)
        self.written = 0
        self.back = back

    def range(self, _: int, end: int, __: int, partitions: int) -> Any:
        assert end == partitions

        def text(place: str) -> None:
            self.written = partitions
            Path(place).mkdir(parents=True)

        return SimpleNamespace(selectExpr=lambda _: SimpleNamespace(write=SimpleNamespace(text=text)))

    @property
    def read(self) -> Any:
        found = SimpleNamespace(count=lambda: self.back(self.written))
        return SimpleNamespace(schema=lambda _: SimpleNamespace(text=lambda _: found))


def task_manager(spark: Cluster) -> Any:
    return SimpleNamespace(id="tm2", cores=3.6, spark=spark, ask=lambda call, *_: call())


@pytest.mark.parametrize("master", ["spark://there:7077", "yarn", "k8s://https://there"])
def test_a_place_that_executors_do_not_share_is_refused(master: str, tmp_path: Path) -> None:
    shared = Cluster(master, lambda written: written)
    check_shared(task_manager(shared), f"{tmp_path}/cp")
    assert shared.written == 4
    for back in (lambda written: 0, lambda written: written - 1):
        with pytest.raises(TaskManagerError, check=breaks("shared files", name="tm2")):
            check_shared(task_manager(Cluster(master, back)), f"{tmp_path}/cp")
    assert not list(tmp_path.glob("cp/*"))  # a place on this machine is left as it was


def test_an_error_of_the_probe_is_told(tmp_path: Path) -> None:
    def denied(_: int) -> int:
        raise OSError("Permission denied: /cp")

    with pytest.raises(TaskManagerError, check=breaks("shared files")):
        check_shared(task_manager(Cluster("yarn", denied)), str(tmp_path))


def test_a_driver_that_works_itself_is_asked_nothing() -> None:
    alone = Cluster("local[4]", lambda _: 0)
    check_shared(task_manager(alone), "/nowhere")
    assert alone.written == 0


def entry(*topics: str, offset: int = 7) -> str:
    return "\n".join(("v1", '{"batchWatermarkMs":5}', *(f'{{"{topic}":{{"0":{offset}}}}}' for topic in topics)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *(("a b", "a b c"), ("b", "a b c"), ("a b a b", "a b c a b c"), ("a b c", "a b c"), ("c", "a b c")),
        *(("a d b", "a b c"), ("d a b c d a b c", "a b c a b c"), ("d", "a b c"), ("d e d e", "a b c a b c")),
    ],
)
def test_a_log_of_offsets_has_the_topics_of_the_plan_in_their_order(before: str, after: str) -> None:
    log = entry(*before.split())
    more = with_topics(log, {"a": {0: 1, 1: 2}, "b": {0: 1}, "c": {0: 3}}, "[a-e]")
    lines = {topic: f'{{"{topic}":{{"0":7}}}}' for topic in before.split()}
    new = {"a": '{"a":{"0":1,"1":2}}', "b": '{"b":{"0":1}}', "c": '{"c":{"0":3}}'}
    assert more.splitlines()[2:] == [{**new, **lines}[topic] for topic in after.split()]
    assert with_topics(more, {"a": {}, "b": {}, "c": {}}, "[a-e]") == more


@pytest.mark.parametrize("log", [entry("b", "a"), entry("x"), "v1\n{}\n-", "v2\n{}\n{}", "v1\n{}\n7"])
def test_a_log_of_other_sources_is_left_alone(log: str) -> None:
    with pytest.raises(ValueError, match=r"log|Expecting"):
        with_topics(log, {"a": {0: 1}, "b": {0: 1}}, "[a-e]")


def test_a_batch_that_was_under_way_is_read_again_with_the_topics_that_it_had(tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for batch in range(4):
        (tmp_path / "offsets" / str(batch)).write_text(entry("a", offset=batch))
    for batch in range(3):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
    (tmp_path / "offsets" / ".3.crc").write_text("sum")
    read_topics(str(tmp_path), {"a": {0: 0}, "b": {0: 9}}, "[ab]")
    logs = [(tmp_path / "offsets" / str(batch)).read_text().splitlines()[2:] for batch in range(4)]
    assert logs[0] == ['{"a":{"0":0}}']
    assert logs[1:] == [[f'{{"a":{{"0":{batch}}}}}', '{"b":{"0":9}}'] for batch in (1, 2, 3)]
    assert sorted(each.name for each in (tmp_path / "offsets").iterdir()) == ["0", "1", "2", "3"]
    read_topics(str(tmp_path), {"b": {0: 9}}, "[ab]")  # one that was deleted
    logs = [(tmp_path / "offsets" / str(batch)).read_text().splitlines()[2:] for batch in range(4)]
    assert logs == [['{"a":{"0":0}}'], *[['{"b":{"0":9}}']] * 3]
    read_topics(str(tmp_path / "none"), {"a": {0: 0}}, "[ab]")
    read_topics("s3a://bucket/cp", {"a": {0: 0}}, "[ab]")
    (tmp_path / "offsets" / "3").write_text(entry("x"))
    with pytest.raises(TaskManagerError):
        read_topics(str(tmp_path), {"a": {0: 0}, "b": {0: 9}}, "[ab]")


def test_before_the_first_batch_each_source_begins_where_the_plan_says(tmp_path: Path) -> None:
    """Spark notes where the sources begin by their numbers: after a topic was deleted, that of another one."""
    noted = tmp_path / "sources" / "1" / "0"
    noted.parent.mkdir(parents=True)
    noted.write_text("0v1\n{}")
    read_topics(str(tmp_path), {"a": {0: 0}}, "[ab]")
    assert not noted.exists()


def test_a_first_batch_under_way_begins_where_the_plan_says_once_topics_have_changed(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(entry("a", "b"))
    noted = tmp_path / "sources" / "0" / "0"
    noted.parent.mkdir(parents=True)
    noted.write_text("0v1\n{}")
    read_topics(str(tmp_path), {"a": {0: 0}, "b": {0: 0}}, "[ab]")
    assert noted.exists()
    read_topics(str(tmp_path), {"b": {0: 0}}, "[ab]")
    assert not noted.exists()


def test_a_checkpoint_is_new_until_a_batch_is_planned(tmp_path: Path) -> None:
    assert is_new(str(tmp_path / "none"), begun=True)
    (tmp_path / "offsets").mkdir()
    assert is_new(f"file://{tmp_path}", begun=True)
    (tmp_path / "offsets" / "0").write_text("v1")
    assert not is_new(str(tmp_path), begun=False)
    assert [is_new("s3a://bucket/cp", begun=begun) for begun in (True, False)] == [False, True]
