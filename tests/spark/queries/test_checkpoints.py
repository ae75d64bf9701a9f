from __future__ import annotations

from pathlib import Path

import pytest

from qod_magics.spark.queries.checkpoints import checkpoint_root, local_path


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
