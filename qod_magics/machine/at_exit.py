"""What is still to be done when the interpreter exits, while a notebook kernel can still send."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from contextlib import suppress


def at_exit(end: Callable[[], object]) -> Callable[[], None]:
    """Have `end` called when the interpreter exits; all that it shows is sent. Returns how to take that back.

    Beyond what `atexit.register` does, it comes before pyzmq stops what large messages need: pyzmq asks for that when
    the first one is sent, which may be later than now. A kernel that can't send a part of a message goes on with the
    next message, which page and server take for the rest of it.
    """
    with suppress(ImportError):  # no kernel without pyzmq
        import zmq.utils.garbage  # noqa: F401  # asks for it when it is imported

    def last() -> None:
        try:
            end()
        finally:
            with suppress(AttributeError, OSError, ValueError):  # there is none, or nobody reads it
                sys.stdout.flush()  # in a kernel: once all that was shown before has been sent

    atexit.register(last)
    return lambda: atexit.unregister(last)
