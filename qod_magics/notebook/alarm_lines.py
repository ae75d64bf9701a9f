"""Alarms in the notebook, unasked: one line each under the cell that ran last.

Alarms come on a thread of their own, often while no cell runs. What a thread prints goes, by the version of ipykernel,
under the cell that started the thread or under another one. So a line is sent as the output of a certain cell, on the
standard error stream: it is no part of what the cell has computed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from qod_magics.monitoring.alarms import Alarm


class AlarmLines:
    """Writes alarms under the cell that ran last, or to a terminal. A shell that is neither, such as that of a run
    without a notebook, has its own way to report them: there, these lines are not `shown`.

    Args:
        shell: of the notebook.

    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._cell: dict[str, Any] = {}  #: the request that asked for the cell that ran last
        self.cell_begins()  # the one that loads the extension

    def __repr__(self) -> str:
        return "alarms under the last cell"

    @property
    def shown(self) -> bool:
        """Whether the shell has a place for these lines: it is that of a kernel, or of a terminal."""
        return self._kernel is not None or hasattr(self._shell, "mainloop")

    @property
    def _kernel(self) -> Any:
        return getattr(self._shell, "kernel", None)

    def cell_begins(self) -> None:
        """Note the cell that is about to run, on its thread."""
        parent = getattr(self._shell, "get_parent", None)
        self._cell = dict(parent() or {}) if parent is not None else {}  # none while a kernel starts

    def __call__(self, alarm: Alarm) -> None:
        """Write one line."""
        line, kernel = f"{alarm}\n", self._kernel
        if kernel is not None:
            content = {"name": "stderr", "text": line}
            kernel.session.send(kernel.iopub_socket, "stream", content, parent=self._cell, ident=b"stream.stderr")
        else:
            sys.stderr.write(line)
