"""What a server that does not start is said to lack. With real ones: tests/live."""

from __future__ import annotations

import pytest

from qod_magics.errors import SetupError
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
