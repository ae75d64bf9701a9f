"""An archive of classes is used where it fits, and never half-written."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from qod_magics.machine import class_data


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A java command with two jars behind a wildcard and one by itself."""
    monkeypatch.setenv("QOD_CACHE", str(tmp_path / "cache"))
    for name in ("jdk/bin/java", "jdk/release", "jars/a.jar", "jars/b.jar", "other/c.jar"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    path = os.pathsep.join([str(tmp_path / "conf"), str(tmp_path / "jars" / "*"), str(tmp_path / "other" / "c.jar")])
    return [str(tmp_path / "jdk" / "bin" / "java"), "-Xmx1g", "-XX:+UseSerialGC", "-cp", path, "some.Main", "port=1"]


def archive(command: list[str]) -> Path:
    found = class_data.archive_for("server", command)
    assert found is not None
    return found


def made(command: list[str], content: str = "classes") -> class_data.Making:
    """An archive as a JVM would have left it, not finished yet."""
    making = class_data.making("server", command)
    assert making is not None
    written = next(
        word for word in making.command if word.startswith(("-XX:ArchiveClassesAtExit=", "-XX:AOTCacheOutput="))
    )
    Path(written.partition("=")[2]).write_text(content)
    return making


@pytest.mark.parametrize(
    ("release", "writes", "reads"),
    [("24.0.1", "ArchiveClassesAtExit", "SharedArchiveFile"), ("25.0.2", "AOTCacheOutput", "AOTCache")],
)
def test_java_25_and_later_write_aot_caches(
    release: str, writes: str, reads: str, command: list[str], tmp_path: Path
) -> None:
    (tmp_path / "jdk" / "release").write_text(f'JAVA_VERSION="{release}"\n')
    making = made(command)
    assert any(word.startswith(f"-XX:{writes}=") for word in making.command)
    assert making.finish()
    assert f"-XX:{reads}={archive(command)}" in class_data.with_archive("server", command)
    assert class_data.archives() == [archive(command)]


def test_an_archive_goes_with_the_java_or_the_jars_that_it_is_for(command: list[str], tmp_path: Path) -> None:
    made(command).finish()
    class_data.remove_unfinished()
    assert class_data.is_whole(archive(command))
    kept = archive(command)
    (tmp_path / "other").rename(tmp_path / "moved")
    class_data.remove_unfinished()
    assert not kept.exists()
    assert list(class_data.directory().iterdir()) == []


@pytest.mark.parametrize("used", [False, True])
def test_an_archive_that_nobody_used_for_a_month_goes(used: bool, command: list[str]) -> None:
    made(command).finish()
    long_ago = time.time() - 31 * 24 * 3600
    os.utime(archive(command).with_suffix(".size"), (long_ago, long_ago))
    if used:
        assert class_data.with_archive("server", command) != command
    class_data.remove_unfinished()
    assert class_data.is_whole(archive(command)) is used


def test_it_lies_in_the_cache(command: list[str], tmp_path: Path) -> None:
    assert archive(command).parent == tmp_path / "cache" / "class-data"


def test_what_classes_do_not_depend_on_makes_no_other_archive(command: list[str]) -> None:
    before = archive(command)
    command[1], command[-1] = "-Xmx2g", "port=2"
    assert archive(command) == before


@pytest.mark.parametrize("file", ["jars/a.jar", "other/c.jar", "jdk/release", "jdk/bin/java"])
def test_another_jar_or_java_makes_another_archive(command: list[str], tmp_path: Path, file: str) -> None:
    before = archive(command)
    os.utime(tmp_path / file, ns=(1, 1))
    assert archive(command) != before


def test_a_jar_that_is_added_makes_another_archive(command: list[str], tmp_path: Path) -> None:
    before = archive(command)
    (tmp_path / "jars" / "new.jar").touch()
    assert archive(command) != before


def test_the_order_of_the_class_path_counts(command: list[str]) -> None:
    before = archive(command)
    command[4] = os.pathsep.join(reversed(command[4].split(os.pathsep)))
    assert archive(command) != before


def test_another_garbage_collector_makes_another_archive(command: list[str]) -> None:
    before = archive(command)
    command[2] = "-XX:+UseG1GC"
    assert archive(command) != before


def test_java_archives_nothing_beside_a_directory_with_files(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    assert class_data.archive_for("server", command) is not None
    (tmp_path / "conf" / "log4j2.properties").touch()
    assert class_data.archive_for("server", command) is None
    assert class_data.making("server", command) is None
    assert class_data.with_archive("server", command) == command


def test_without_an_archive_the_command_stays(command: list[str]) -> None:
    assert class_data.with_archive("server", command) == command


def test_an_archive_is_used_only_when_it_is_whole(command: list[str]) -> None:
    making = made(command)
    assert class_data.with_archive("server", command) == command
    assert making.finish()
    with_it = class_data.with_archive("server", command)
    assert f"-XX:SharedArchiveFile={archive(command)}" in with_it
    assert [word for word in with_it if word in command] == command
    assert archive(command).read_text() == "classes"
    assert class_data.making("server", command) is None


def test_a_java_that_writes_none_is_not_asked_again(command: list[str]) -> None:
    making = class_data.making("server", command)
    assert making is not None
    assert not making.finish()
    assert class_data.with_archive("server", command) == command
    assert class_data.making("server", command) is None
    assert not class_data.is_wanted(archive(command))


def test_a_new_archive_takes_the_place_of_the_one_for_older_jars(command: list[str], tmp_path: Path) -> None:
    made(command).finish()
    old = archive(command)
    elsewhere = [*command[:4], command[4].rpartition(os.pathsep)[0], *command[5:]]
    made(elsewhere).finish()
    os.utime(tmp_path / "other" / "c.jar", ns=(1, 1))
    made(command).finish()
    assert not old.exists()
    assert sorted(class_data.directory().glob("*.jsa")) == sorted([archive(command), archive(elsewhere)])
    assert not any(file.stem == old.stem for file in class_data.directory().iterdir())


def test_what_a_killed_process_left_is_removed(command: list[str]) -> None:
    made(command)
    finished = made([*command[:2], "-XX:+UseG1GC", *command[3:]])
    finished.finish()
    class_data.remove_unfinished()
    assert {file.stem for file in class_data.directory().iterdir()} == {finished.archive.stem}


def test_an_archive_that_was_cut_short_is_none_and_is_made_again(command: list[str]) -> None:
    made(command, "classes").finish()
    archive(command).write_text("clas")
    assert class_data.with_archive("server", command) == command
    assert class_data.is_wanted(archive(command))
    made(command, "classes").finish()
    assert class_data.is_whole(archive(command))
