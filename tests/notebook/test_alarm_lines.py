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
from qod_magics.notebook.alarm_lines import AlarmLines
from qod_magics.notebook.replies import FROM_THE_START

WAIT_S = 60.0
ALARM = Alarm("starved", "tm1", "the minimums don't fit on tm1", datetime(2026, 11, 27, 12, tzinfo=UTC))
BEGIN = """
%load_ext qod_magics
from qod_magics.monitoring.monitor import Monitor
(magics,) = [one for one in get_ipython().configurables if type(one).__name__ == "QodMagics"]
now = [0.0]
monitor = Monitor(clock=lambda: now[0])
remove = monitor.on(magics.alarm_lines)
"""


@pytest.fixture
def client() -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel(startup_timeout=WAIT_S, extra_arguments=[FROM_THE_START])
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.kernel
def test_an_alarm_is_a_line_under_the_cell_that_ran_last(client: BlockingKernelClient) -> None:
    """It comes on the thread of a hook that an earlier cell began, a moment after the cell has ended."""
    for cell in (BEGIN, "1 + 1", "now[0] = 1000.0  # for so long the controller has decided nothing"):
        reply = client.execute_interactive(cell, timeout=WAIT_S, output_hook=lambda _: None)
        assert reply["content"]["status"] == "ok"
    while (message := client.get_iopub_msg(timeout=WAIT_S))["msg_type"] != "stream":
        pass
    assert message["parent_header"]["msg_id"] == reply["parent_header"]["msg_id"]
    assert message["content"]["name"] == "stderr"
    (line,) = message["content"]["text"].splitlines()
    assert "controller-silent" in line


@pytest.mark.parametrize(("shell", "written"), [({"mainloop": None}, True), ({}, False)], ids=["terminal", "headless"])
def test_a_terminal_shows_them_and_a_run_without_a_notebook_has_its_own_lines(
    shell: dict[str, Any], written: bool
) -> None:
    lines, error = AlarmLines(SimpleNamespace(**shell)), io.StringIO()  # type: ignore[arg-type]
    lines.cell_begins()
    with redirect_stderr(error):
        lines(ALARM)
    assert error.getvalue() == (f"{ALARM}\n" if written else "")
