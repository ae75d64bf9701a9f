from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client import KernelManager
from jupyter_client.blocking import BlockingKernelClient

from qod_magics.notebook.replies import FROM_THE_START

LARGE = 200_000  #: letters; more than what a message copies
LAST_WORDS = f"""\
from IPython.display import HTML, display
from qod_magics.machine.at_exit import at_exit

at_exit(lambda: shown.update(HTML("last" + "." * {LARGE})))
shown = display(HTML("first" + "." * {LARGE}), display_id=True)
"""
PATIENCE_S = 60.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[BlockingKernelClient]:
    manager = KernelManager(connection_file=str(tmp_path / "kernel.json"))
    manager.start_kernel(cwd=str(tmp_path), extra_arguments=[FROM_THE_START])
    connected = manager.blocking_client()
    connected.start_channels()
    try:
        connected.wait_for_ready(timeout=PATIENCE_S)
        yield connected
    finally:
        connected.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_kernel_that_exits_still_sends_what_is_large(client: BlockingKernelClient) -> None:
    """Also where its first large message came after the call was asked for."""
    client.execute(LAST_WORDS)
    assert shown(client, "display_data").startswith("first")
    client.shutdown()
    assert shown(client, "update_display_data").startswith("last")


def shown(client: BlockingKernelClient, kind: str) -> str:
    """The page's text of the next message of this kind; a message that is not whole raises ValueError."""
    while True:
        message: dict[str, Any] = client.get_iopub_msg(timeout=PATIENCE_S)
        assert message["msg_type"] != "error", message["content"]
        if message["msg_type"] == kind:
            return str(message["content"]["data"]["text/html"])
