"""The dispatchers that come with the package, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qod_magics.core.dispatch import Dispatcher
from qod_magics.policies import dirigo

#: Each call makes a new one.
DISPATCHERS: Mapping[str, Callable[[], Dispatcher]] = {
    "central-random": dirigo.CentralRandom,
    "dirigo-2rtt-parallel": dirigo.Parallel,
    "dirigo-2rtt-pipelined": dirigo.Pipelined,
    "dirigo-2rtt-sequential": dirigo.Sequential,
    "dirigo-accept-and-check": dirigo.AcceptAndCheck,
    "dirigo-laxity": dirigo.LaxityBasedDirect,
    "dirigo-queue": dirigo.QueueBasedDirect,
    "dirigo-reject-send": dirigo.RejectSend,
    "dirigo-static": dirigo.PriorityBased,
}
