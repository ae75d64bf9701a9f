"""Ports for the servers that are started here, chosen before the server that will listen there has begun."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

HOST = "127.0.0.1"
_FIRST = 15_000  #: below it are most services' own ports
_EPHEMERAL = 32_768  #: where systems begin that do not tell; the registered range ends at 49151
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 200


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on now, all different, in no order.

    A JVM binds its port seconds after it was told it, and meanwhile the system must not give the port to somebody else:
    so these lie below the range from which it takes those of outgoing connections and of listeners that do not care.
    Where that range begins too low, they come from it.

    Raises:
        OSError: none is left.

    """
    drawn = random.SystemRandom()  # what seeds the numbers of an experiment must not make its ports those of another
    beyond = _ephemeral()
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        for attempt in range(count + _TRIES):
            if len(found) == count:
                return found
            one = stack.enter_context(socket.socket())
            below = beyond > _FIRST + 1000 and attempt < _TRIES
            with contextlib.suppress(OSError):
                one.bind((HOST, drawn.randrange(_FIRST, beyond) if below else 0))
                found.append(one.getsockname()[1])
        raise OSError(f"No {count} free ports on {HOST}.")


def _ephemeral() -> int:
    """Where the range of ports begins that the system gives out itself."""
    try:
        return int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _EPHEMERAL
