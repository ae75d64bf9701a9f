"""Packages of the user's from a Maven repository of this machine."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from qod_magics.errors import SetupError
from qod_magics.machine.packages import check_files, check_packages, expanded, package_jars, spark_words
from tests.machine.maven_repository import Repository, serving
from tests.raising import breaks

TABLES, STORAGE, SPARKS, LOGGER = "t:tables_2.13:1.0", "t:storage:1.0", "s:has:2.0", "l:logger:3.1"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """A package that needs a jar, which needs one of Spark's."""
    with serving(Repository()) as repository:
        repository.publish_with_pom(TABLES, STORAGE)
        repository.publish_with_pom(STORAGE, SPARKS)
        repository.publish_with_pom(SPARKS)
        repository.publish_with_pom(LOGGER, SPARKS, scope="test")
        monkeypatch.setenv("QOD_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("QOD_MAVEN_REPOSITORY", repository.url)
        yield repository


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A Spark that has one of the jars, of another version."""
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "has-2.1.jar").touch()
    return tmp_path / "spark"


def names(files: list[Path]) -> list[str]:
    return [file.name for file in files]


def test_a_package_comes_with_what_it_needs_and_spark_lacks(repository: Repository, home: Path) -> None:
    files = package_jars([TABLES, LOGGER], home)
    assert sorted(names(files)) == ["logger-3.1.jar", "storage-1.0.jar", "tables_2.13-1.0.jar"]
    assert all(file.is_file() for file in files)
    assert package_jars([], home) == []


def test_what_was_resolved_once_needs_no_repository(repository: Repository, home: Path) -> None:
    first = package_jars([TABLES, LOGGER], home)
    repository.files.clear()
    asked = repository.asked.total()
    assert sorted(package_jars([LOGGER, TABLES], home)) == sorted(first)
    assert repository.asked.total() == asked


def test_a_jar_that_was_changed_in_the_cache_is_refused(repository: Repository, home: Path) -> None:
    [file] = package_jars([LOGGER], home)
    file.write_bytes(b"another")
    with pytest.raises(SetupError, check=breaks("checksum", name=file.name)):
        package_jars([LOGGER], home)


def test_a_jar_that_the_repository_has_changed_since_is_refused(repository: Repository, home: Path) -> None:
    [file] = package_jars([LOGGER], home)
    shutil.rmtree(file.parent)
    repository.swap("/l/logger/3.1/logger-3.1.jar")
    with pytest.raises(SetupError, check=breaks("checksum")):
        package_jars([LOGGER], home)


@pytest.mark.parametrize("package", ["t:nowhere:1.0", "t:tables_2.13:9.9"])
def test_what_is_published_nowhere_is_refused_in_one_line(repository: Repository, home: Path, package: str) -> None:
    with pytest.raises(SetupError, check=breaks("published")):
        package_jars([package], home)


def test_a_broken_download_is_not_kept(repository: Repository, home: Path) -> None:
    repository.cut.add("/t/storage/1.0/storage-1.0.jar")
    with pytest.raises(SetupError, check=breaks("published")):
        package_jars([TABLES], home)
    repository.cut.clear()
    files = package_jars([TABLES], home)
    assert [file.name for file in files if not zipfile.is_zipfile(file)] == []
    assert sorted(names(files)) == ["storage-1.0.jar", "tables_2.13-1.0.jar"]


def test_a_page_in_the_place_of_a_jar_is_refused(repository: Repository, home: Path) -> None:
    repository.files["/l/logger/3.1/logger-3.1.jar"] = b"<html>log in</html>"
    with pytest.raises(SetupError, check=breaks("published")):
        package_jars([LOGGER], home)


def test_jars_of_two_groups_may_have_one_name(repository: Repository, home: Path) -> None:
    for coordinate in ("a:core:1.0", "b:core:1.0"):
        repository.publish_with_pom(coordinate)
    assert len(package_jars(["a:core:1.0", "b:core:1.0"], home)) == 2


def test_a_jar_that_is_missing_in_the_cache_is_told(repository: Repository, home: Path) -> None:
    package_jars([TABLES], home)[0].unlink()
    with pytest.raises(SetupError, check=breaks("checksum")):
        package_jars([TABLES], home)


@pytest.mark.parametrize("text", ["", "[1]", '{"l/logger-3.1.jar": "0f"}', '{"format": 0, "sha256": {}}'])
def test_a_pin_of_another_format_is_written_again(repository: Repository, home: Path, text: str) -> None:
    [file] = package_jars([LOGGER], home)
    pin = file.parent.with_suffix(".json")
    pinned = pin.read_text()
    pin.write_text(text)
    assert package_jars([LOGGER], home) == [file]
    assert pin.read_text() == pinned


def test_a_package_without_its_jar_leaves_no_pin(repository: Repository, home: Path) -> None:
    jar = repository.files.pop("/l/logger/3.1/logger-3.1.jar")
    with pytest.raises(SetupError, check=breaks("published")):
        package_jars([LOGGER], home)
    repository.files["/l/logger/3.1/logger-3.1.jar"] = jar
    assert names(package_jars([LOGGER], home)) == ["logger-3.1.jar"]


@pytest.mark.parametrize("package", ["delta", "io.delta:delta-spark_2.13", "a:b:c:d", "a:b:", "", "a b:c:1"])
def test_what_is_no_coordinate_is_refused(package: str) -> None:
    check_packages(["org.apache.spark:spark-avro_2.13:4.2.0"])
    with pytest.raises(SetupError, check=breaks("coordinate", value=package)):
        check_packages([package])


def test_a_jar_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (there := tmp_path / "a, b.jar").touch()
    check_files(expanded([there]))
    with pytest.raises(SetupError, check=breaks("file exists", value=str(tmp_path / "c.jar"))):
        check_files([tmp_path / "c.jar"])
    assert spark_words([there, tmp_path]) == ["--jars", f"{tmp_path.as_uri()}/a%2C%20b.jar,{tmp_path.as_uri()}"]
    assert spark_words([]) == []


def test_names_are_those_of_this_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert expanded(["own.jar"]) == (tmp_path / "own.jar",)
    assert expanded(["~/own.jar"]) == (Path.home() / "own.jar",)
