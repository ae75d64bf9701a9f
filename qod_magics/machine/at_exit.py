"""Cleanup at interpreter exit, while a notebook kernel can still send."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from contextlib import suppress


def at_exit(end: Callable[[], object]) -> Callable[[], None]:
    """Call `end` when the interpreter exits, and send all its output. Returns a function that cancels this.

    Unlike with `atexit.register`, `end` runs before pyzmq stops the thread that large messages need: pyzmq registers
    that stop when the first one is sent, maybe after now. A kernel that can't send a part of a message sends the next
    message, which page and server take for the missing part.
    """
    with suppress(ImportError):  # no kernel without pyzmq
        import zmq.utils.garbage  # noqa: F401  # registers the stop on import

    def last() -> None:
        try:
            end()
        finally:
            with suppress(AttributeError, OSError, ValueError):  # no stdout, or nobody reads it
                sys.stdout.flush()  # in a kernel: waits until earlier output has been sent

    atexit.register(last)
    return lambda: atexit.unregister(last)
