"""What a server that does not start is said to lack. With real ones: tests/live."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import SetupError
from qod_magics.machine.java import Java
from qod_magics.session.settings import Settings
from qod_magics.spark.servers import server
from qod_magics.spark.servers.connection import CONNECT_MODE, REMOTE
from qod_magics.spark.servers.server import ServerOptions, Tools, _reason
from tests.raising import breaks

NO_ROOM = """\
OpenJDK 64-Bit Server VM warning: INFO: os::commit_memory(0x1d08000000, 966367641600, 0) failed; errno=12
#
# There is insufficient memory for the Java Runtime Environment to continue.
# Native memory allocation (mmap) failed to map 966367641600 bytes. Error detail: committing reserved memory.
# An error report file with more information is saved as:
# /tmp/qod-tm-x/hs_err_pid1452.log
"""


@pytest.mark.parametrize("memory", ["1x", "1024", "", "two", "0g", "1gb", "-1g", "1g "])
def test_what_is_no_heap_is_refused_before_a_server_starts(memory: str) -> None:
    with pytest.raises(SetupError, check=breaks("size with unit")):
        ServerOptions(memory=memory)


@pytest.mark.parametrize("memory", ["900m", "1g", "2G", "1048576k"])
def test_what_is_a_heap_is_one(memory: str) -> None:
    assert ServerOptions(memory=memory).memory == memory


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (NO_ROOM, "failed to map 966367641600 bytes"),
        ("Error occurred during initialization of VM\nToo small maximum heap\n", "Too small maximum heap"),
        ("Unrecognized option: -Xq\nError: Could not create the Java Virtual Machine.\n", "Unrecognized option: -Xq"),
        ("java.net.BindException: Address already in use\n\tat sun.nio.ch.Net.bind0\n", "java.net.BindException"),
        ("", "it wrote nothing"),
    ],
)
def test_the_reason_of_an_end_is_the_line_that_tells_it(log: str, told: str) -> None:
    assert told in _reason(log)


class Started:
    """What would have been started."""

    def __init__(self, command: list[str], env: dict[str, str | None], cwd: Path, **_: object) -> None:
        self.command, self.env, self.cwd = command, env, cwd


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    """A server's command is made, and not run."""
    return Tools(
        java=lambda: Java(tmp_path / "bin" / "java", 17, "PATH"),
        home=lambda: tmp_path,
        jars=lambda home: [],
        packages=lambda packages, home: [tmp_path / f"{each}.jar" for each in packages],
        command=lambda java, home, main, words: [str(java.path), "-cp", "x", *words],
        child=Started,  # type: ignore[arg-type]
    )


def test_what_points_this_notebook_to_a_server_does_not_reach_the_launcher_of_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark's launcher would leave out the jars of a server."""
    for name, value in ((CONNECT_MODE, "1"), (REMOTE, "sc://127.0.0.1:1"), ("KEPT", "kept")):
        monkeypatch.setenv(name, value)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f'#!/bin/sh\nprintf "%s\\0" "${{{CONNECT_MODE}-none}}" "${{{REMOTE}-none}}" "$KEPT"\n')
    java.chmod(0o755)
    assert server.launch_command(Java(java, 17, "PATH"), tmp_path, "Main", [])[:3] == ["none", "none", "kept"]


@pytest.mark.parametrize("own", [{}, {"spark.driver.host": "10.0.0.5"}])
def test_whatever_names_another_address_for_spark_a_server_is_on_loopback(
    own: dict[str, str], tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine set up for a Spark of its own: SPARK_LOCAL_HOSTNAME, spark-defaults.conf. Options of a call hold."""
    monkeypatch.setenv("SPARK_LOCAL_HOSTNAME", "10.0.0.5")
    made = server.LocalServer("tm1", ServerOptions(conf=own), tools=tools)
    shutil.rmtree(made.directory)
    made.claim.release()
    child: Any = made.child
    assert child.env["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert child.env["SPARK_LOCAL_HOSTNAME"] is None  # not inherited
    settings = dict(word.split("=", 1) for word in child.command if word.startswith("spark."))
    assert settings["spark.driver.host"] == own.get("spark.driver.host", "127.0.0.1")
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("cpus", "conf", "partitions"),
    [({0}, {}, "1"), ({0, 1, 2}, {}, "3"), ({0, 1}, {"spark.sql.shuffle.partitions": "9"}, "9")],
)
def test_the_notebooks_own_queries_shuffle_into_a_partition_for_each_core(
    cpus: set[int], conf: dict[str, str], partitions: str, tools: Tools
) -> None:
    options = ServerOptions(cpus=frozenset(cpus), pinned=False, conf=conf)
    made = server.LocalServer("tm1", options, tools=tools)
    shutil.rmtree(made.directory)
    made.claim.release()
    child: Any = made.child
    settings = dict(word.split("=", 1) for word in child.command if word.startswith("spark."))
    assert settings["spark.sql.shuffle.partitions"] == partitions


def test_relative_paths_are_those_of_the_notebook(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of files in recipes by the working directory, of modules by Python's path: "" is the directory there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "lib", "/abs", "/abs"])
    settings = Settings()
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path / "later")  # servers that start later agree with those that are up
    made = server.LocalServer("tm1", settings.server(None), tools=tools)
    shutil.rmtree(made.directory)
    made.claim.release()
    child: Any = made.child
    assert child.cwd == tmp_path
    assert child.env["PYTHONPATH"].split(os.pathsep)[1:] == [str(tmp_path), f"{tmp_path}/lib", "/abs"]


def test_a_notebook_whose_directory_is_gone_has_servers_all_the_same(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "path", ["", "/abs"])
    made = server.LocalServer("tm1", Settings().server(None), tools=tools)
    shutil.rmtree(made.directory)
    made.claim.release()
    child: Any = made.child
    assert child.cwd == made.directory
    assert child.env["PYTHONPATH"].split(os.pathsep)[1:] == ["/abs"]
    monkeypatch.chdir(tmp_path)


def test_a_user_that_hadoop_can_not_name_is_told_and_no_core_stays_claimed(tools: Tools) -> None:
    def nameless() -> None:
        raise SetupError("user id 12345 must have an entry")

    released: list[bool] = []
    claim: Any = SimpleNamespace(release=lambda: released.append(True), shared=frozenset())
    with pytest.raises(SetupError):
        server.LocalServer("tm1", ServerOptions(), claim, tools=replace(tools, user=nameless))
    assert released == [True]
