"""Replies of ipykernel 7.1 to 7.3, sent so that no request is missed meanwhile.

These versions write replies to the shell channel's socket themselves, past the stream that reads requests from it.
libzmq then counts a request that arrives during the write as seen, and the stream never hears of it: its cell stays at
`[*]`, or its slider does nothing, until another client connects (ipykernel issue 1554). From 7.4 on replies go through
the stream. Loading qod_magics makes these versions do the same; this module is an extension of its own, for a kernel
that is to have it from its first request on: `--IPKernelApp.extra_extensions=qod_magics.notebook.replies`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load_ipython_extension", "send_through_stream"]

#: The argument of a kernel that loads this from its start on.
FROM_THE_START = f"--IPKernelApp.extra_extensions={__name__}"


def send_through_stream(shell: InteractiveShell) -> bool:
    """Have the kernel of `shell` send replies through the stream that reads requests; whether it did not already.

    Without effect in other shells than a kernel's and in other versions of ipykernel.
    """
    kernel = getattr(shell, "kernel", None)
    thread = getattr(kernel, "shell_channel_thread", None)
    if thread is None:  # no kernel, or ipykernel 6
        return False
    stream, manager = getattr(kernel, "shell_stream", None), thread.manager
    if stream is None or getattr(manager, "_shell_socket", stream) is stream:
        return False
    manager._shell_socket = stream
    return True


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called as the kernel starts."""
    send_through_stream(shell)
