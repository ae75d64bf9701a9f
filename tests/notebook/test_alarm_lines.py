"""Alarms are lines under the cell that ran last, whichever thread they come from."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stderr
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from qod_magics.monitoring.alarms import Alarm
from qod_magics.notebook.commands import AlarmLines
from qod_magics.notebook.replies import FROM_THE_START

WAIT_S = 60.0
ALARM = Alarm("starved", "tm1", "the minimums don't fit on tm1", datetime(2026, 11, 27, 12, tzinfo=UTC))
BEGIN = """
%load_ext qod_magics
import threading
from qod_magics.monitoring.monitor import Monitor
(magics,) = [one for one in get_ipython().configurables if type(one).__name__ == "QodMagics"]
now = [0.0]
shown = threading.Event()

def begun():
    monitor = Monitor(clock=lambda: now[0])
    return monitor.on(lambda alarm: (magics.alarm_lines(alarm), shown.set()))

"""
SILENT = "now[0] += 1000.0  # for so long the controller has decided nothing\n"
#: One alarm while the cell runs that loads the extension, and a hook for another.
LOADING = f"{BEGIN}remove = begun()\n{SILENT}assert shown.wait(60.0)\nremove()\nremove = begun()\n"


@pytest.fixture
def client() -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel(startup_timeout=WAIT_S, extra_arguments=[FROM_THE_START])
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.kernel
def test_an_alarm_is_a_line_under_the_cell_that_ran_last(client: BlockingKernelClient) -> None:
    """It comes on the thread of a hook that an earlier cell began: while the cell runs that loads the extension, and a
    moment after a later one has ended."""
    for cells in ([LOADING], ["1 + 1", SILENT]):
        seen: list[dict[str, Any]] = []
        for cell in cells:
            reply = client.execute_interactive(cell, timeout=WAIT_S, output_hook=seen.append)
            assert reply["content"]["status"] == "ok", reply["content"]
        while not (lines := [message for message in seen if message["msg_type"] == "stream"]):
            seen.append(client.get_iopub_msg(timeout=WAIT_S))
        (message,) = lines
        assert message["parent_header"]["msg_id"] == reply["parent_header"]["msg_id"]
        assert message["content"]["name"] == "stderr"
        (line,) = message["content"]["text"].splitlines()
        assert "controller-silent" in line


@pytest.mark.parametrize(
    ("shell", "shown"),
    [
        ({"mainloop": None}, True),
        ({}, False),
        ({"kernel": object(), "get_parent": lambda: None}, True),
    ],
    ids=["terminal", "headless", "a kernel that starts"],
)
def test_a_kernel_and_a_terminal_show_them_and_a_run_without_a_notebook_has_its_own_lines(
    shell: dict[str, Any], shown: bool
) -> None:
    assert AlarmLines(SimpleNamespace(**shell)).shown == shown  # type: ignore[arg-type]


def test_a_terminal_has_them_on_standard_error() -> None:
    lines, error = AlarmLines(SimpleNamespace(mainloop=None)), io.StringIO()  # type: ignore[arg-type]
    with redirect_stderr(error):
        lines(ALARM)
    assert error.getvalue() == f"{ALARM}\n"
