"""What a server that does not start is said to lack. With real ones: tests/live."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from qod_magics.errors import SetupError
from qod_magics.jvm.java import Java
from qod_magics.spark.servers import server
from qod_magics.spark.servers.server import ServerOptions, _reason

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
    with pytest.raises(SetupError, match="number with its unit, such as 900m or 2g, not"):
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

    def __init__(self, command: list[str], env: dict[str, str | None], **_: object) -> None:
        self.command, self.env = command, env


@pytest.mark.parametrize("own", [{}, {"spark.driver.host": "10.0.0.5"}])
def test_whatever_names_another_address_for_spark_a_server_is_on_loopback(
    own: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A machine set up for a Spark of its own: SPARK_LOCAL_HOSTNAME, spark-defaults.conf. Options of a call hold."""
    monkeypatch.setenv("SPARK_LOCAL_HOSTNAME", "10.0.0.5")
    monkeypatch.setattr(server, "find_java", lambda: Java(tmp_path / "bin" / "java", 17, "PATH"))
    monkeypatch.setattr(server, "spark_home", lambda: tmp_path)
    monkeypatch.setattr(server, "connector_jars", lambda: [])
    monkeypatch.setattr(server, "launch_command", lambda java, home, main, words: [str(java.path), "-cp", "x", *words])
    monkeypatch.setattr(server, "Child", Started)
    made = server.LocalServer("tm1", ServerOptions(conf=own))
    shutil.rmtree(made.directory)
    made.claim.release()
    child: Any = made.child
    assert child.env["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert child.env["SPARK_LOCAL_HOSTNAME"] is None  # not inherited
    settings = dict(word.split("=", 1) for word in child.command if word.startswith("spark."))
    assert settings["spark.driver.host"] == own.get("spark.driver.host", "127.0.0.1")
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
