from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.spark.queries.checkpoints import check_shared, checkpoint_root, local_path
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
