"""Ports for the servers started here, chosen before the server listens."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

HOST = "127.0.0.1"
_FIRST = 15_000  #: most services' ports lie below
_EPHEMERAL = 32_768  #: assumed where unknown: Linux's default; others begin at 49152
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 200


def free_ports(count: int) -> list[int]:
    """Distinct ports of the loopback interface that nobody listens on now, in no order.

    A JVM binds its port seconds after learning it, and meanwhile the system must not assign the port to anybody else:
    so these lie below the ephemeral range, which serves outgoing connections and listeners on port 0. Where that range
    begins too low, they come from it.

    Raises:
        OSError: none is left.

    """
    drawn = random.SystemRandom()  # equally seeded experiments must not draw the same ports
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
    """The first port of the system's ephemeral range."""
    try:
        return int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _EPHEMERAL
