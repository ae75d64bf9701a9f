"""Jars are resolved once, whole or not at all, and never looked for again."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from qod_magics.errors import SetupError
from qod_magics.machine.jars import JarSet, NotPublished, broker_set, connector_set, resolve, sha256
from tests.machine.fakes import retry_at_once
from tests.machine.maven_repository import Repository, serving
from tests.raising import breaks

COORDINATES = ("org.example:app:1.0", "org.example:base:3.0", "org.example:library:2.0")
APP = JarSet("app", {coordinate: Repository().publish(coordinate) for coordinate in COORDINATES})
APP_JAR = "/org/example/app/1.0/app-1.0.jar"


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Repository]:
    """A repository with the jars of APP, and an empty cache."""
    published = Repository()
    for coordinate in COORDINATES:
        published.publish(coordinate)
    with serving(published):
        monkeypatch.setenv("QOD_MAVEN_REPOSITORY", published.url)
        monkeypatch.setenv("QOD_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        retry_at_once(monkeypatch)
        yield published


def names(files: list[Path]) -> list[str]:
    return [file.name for file in files]


def leftovers(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.name.startswith(".")]


def test_all_jars_of_a_set_are_downloaded(repository: Repository) -> None:
    files = resolve(APP, progress=False)
    assert names(files) == ["app-1.0.jar", "base-3.0.jar", "library-2.0.jar"]
    assert all(zipfile.is_zipfile(file) for file in files)


def test_the_second_time_nobody_is_asked(repository: Repository) -> None:
    first = resolve(APP, progress=False)
    asked = repository.asked.total()
    assert asked > 0
    assert resolve(APP, progress=False) == first
    assert repository.asked.total() == asked


def test_a_new_process_needs_no_network(repository: Repository) -> None:
    first = resolve(APP, progress=False)
    code = (
        f"SUMS = {APP.checksums}\n"
        "from qod_magics.machine.jars import JarSet, resolve\n"
        "import sys\n"
        "print(*resolve(JarSet('app', SUMS)), sep='\\n')\n"
        "assert 'pooch' not in sys.modules and 'requests' not in sys.modules\n"
    )
    nowhere = {"QOD_MAVEN_REPOSITORY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | nowhere, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(file) for file in first]


def test_what_is_published_nowhere_is_named(repository: Repository) -> None:
    with pytest.raises(NotPublished, check=breaks("published", name="org/example/nothing/1.0/nothing-1.0.jar")):
        resolve(JarSet("nothing", {"org.example:nothing:1.0": "0" * 64}), progress=False)


def test_the_next_repository_has_what_one_lacks(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Repository()) as empty:
        (tmp_path / "jgo.conf").write_text(f"[repositories]\nempty = {empty.url}\nfull = {repository.url}\n")
        monkeypatch.setenv("JGO_CONFIG_FILE", str(tmp_path / "jgo.conf"))
        monkeypatch.delenv("QOD_MAVEN_REPOSITORY")
        assert len(resolve(APP, progress=False)) == 3
        assert empty.asked[APP_JAR] == 1, "a jar that is not there is not asked for again"


def test_a_repository_out_of_reach_says_what_to_do(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QOD_MAVEN_REPOSITORY", "http://127.0.0.1:9")
    with pytest.raises(SetupError, check=breaks("reachable")):
        resolve(APP, progress=False)


def test_a_broken_download_leaves_nothing_and_can_be_repeated(repository: Repository, tmp_path: Path) -> None:
    repository.cut.add(APP_JAR)
    with pytest.raises(SetupError):
        resolve(APP, progress=False)
    assert repository.asked[APP_JAR] == 3, "a broken download is tried again"
    assert APP.cached() is None
    assert not list((tmp_path / "cache").rglob("app-1.0.jar"))
    assert not leftovers(tmp_path / "cache")
    repository.cut.clear()
    assert len(resolve(APP, progress=False)) == 3


def test_what_a_killed_process_left_is_removed(repository: Repository, tmp_path: Path) -> None:
    half = tmp_path / "cache" / "jars" / ".app-killed"
    half.mkdir(parents=True)
    (half / "app-1.0.jar").write_bytes(b"half")
    assert len(resolve(APP, progress=False)) == 3
    assert not leftovers(tmp_path / "cache")


def test_a_cut_jar_in_mavens_own_store_is_not_taken(repository: Repository, tmp_path: Path) -> None:
    stored = tmp_path / "m2" / APP_JAR.lstrip("/")
    stored.parent.mkdir(parents=True)
    stored.write_bytes(repository.files[APP_JAR][:1000])
    assert all(zipfile.is_zipfile(file) for file in resolve(APP, progress=False))
    assert stored.read_bytes() == repository.files[APP_JAR][:1000], "Maven's store is read only"


def test_a_released_jar_in_mavens_own_store_is_taken(repository: Repository, tmp_path: Path) -> None:
    stored = tmp_path / "m2" / APP_JAR.lstrip("/")
    stored.parent.mkdir(parents=True)
    stored.write_bytes(repository.files[APP_JAR])
    assert len(resolve(APP, progress=False)) == 3
    assert repository.asked[APP_JAR] == 0


def test_another_jar_in_mavens_own_store_is_not_taken(repository: Repository, tmp_path: Path) -> None:
    stored = tmp_path / "m2" / APP_JAR.lstrip("/")
    stored.parent.mkdir(parents=True)
    stored.write_bytes(repository.files["/org/example/base/3.0/base-3.0.jar"])
    (app, *_) = resolve(APP, progress=False)
    assert app.read_bytes() == repository.files[APP_JAR]


def test_a_repository_that_sends_another_jar_is_refused(repository: Repository, tmp_path: Path) -> None:
    repository.swap(APP_JAR)
    with pytest.raises(SetupError, check=breaks("checksum")):
        resolve(APP, progress=False)
    assert APP.cached() is None
    assert not list((tmp_path / "cache").rglob("app-1.0.jar"))


def test_every_jar_of_this_release_has_its_checksum() -> None:
    for jars in (*map(connector_set, ("4.1.0", "4.2.0", "4.3.0")), broker_set()):
        released = {"-".join(coordinate.split(":")[1:]): digest for coordinate, digest in jars.checksums.items()}
        for file in jars.cached() or []:  # there where `make jars` was run
            assert released[file.stem] == sha256(file), file
    assert len(broker_set().checksums) > 40


def test_two_processes_at_once_resolve_once(repository: Repository) -> None:
    code = (
        f"SUMS = {APP.checksums}\n"
        "from qod_magics.machine.jars import JarSet, resolve\n"
        "print(len(resolve(JarSet('app', SUMS), progress=False)))\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0].strip() for process in both] == ["3", "3"]
    assert repository.jars_sent() == 3


def test_without_a_terminal_a_download_is_one_line(repository: Repository, capfd: pytest.CaptureFixture[str]) -> None:
    resolve(APP)
    said = capfd.readouterr().err
    assert re.fullmatch(r"app: 3 jars, \d+\.\d MB downloaded\n", said)
    resolve(APP)
    assert capfd.readouterr().err == ""


def test_a_download_that_fails_does_not_say_that_it_is_there(
    repository: Repository, capfd: pytest.CaptureFixture[str]
) -> None:
    repository.cut.add(APP_JAR)
    with pytest.raises(SetupError):
        resolve(APP)
    assert capfd.readouterr().err == ""


def test_a_progress_bar_shows_in_a_terminal_and_only_while_downloading(repository: Repository) -> None:
    code = (
        f"SUMS = {APP.checksums}\n"
        "from qod_magics.machine.jars import JarSet, resolve\n"
        "resolve(JarSet('app', SUMS))\n"
        "print('and again')\n"
        "resolve(JarSet('app', SUMS))\n"
    )
    first, again = in_a_terminal([sys.executable, "-c", code]).split("and again")
    assert re.search(r"app: \w+.*3/3", first)
    assert again.strip() == ""


def in_a_terminal(command: list[str]) -> str:
    """What a command writes into a terminal of its own."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 120))
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its) as process:
        os.close(its)
        written = bytearray()
        with suppress(OSError):  # Linux's end of the file
            while part := os.read(ours, 4096):
                written += part
    os.close(ours)
    assert process.returncode == 0, written.decode()
    return written.decode()


def test_a_cache_that_cant_be_written_is_named(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("QOD_CACHE", str(tmp_path / "file"))
    with pytest.raises(SetupError, check=breaks("writable")):
        resolve(APP, progress=False)


def test_all_parts_of_the_broker_are_of_one_version() -> None:
    brokers = {coordinate.split(":")[2] for coordinate in broker_set().checksums if ":kafka-" in coordinate}
    assert len(brokers) == 1
