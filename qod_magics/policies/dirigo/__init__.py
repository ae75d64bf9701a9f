"""Dirigo: per message and without any central part, which worker runs it, so that latency targets hold.

Source: Le Xu, dissertation, 2021, chapter 6. A function is bound to one worker, its *lessor*; another that runs one of
its messages is a *lessee*. Static binding keeps state local; dynamic binding draws two workers per message and asks;
optimistic offloading leaves messages with the lessor until they would be late.

`base.Dirigo` is the dispatcher that all policies share. `binding` has the policies that
decide before a message is queued, and those that offload after. `queues` has the workers, their messages and the
markers of windows. A worker checks a message against its own queue alone (`queues.LaxityQueue`), in O(square root of
the length); `benchmarks.dirigo.staircase` is the source's Algorithm 6.1, corrected and as printed.

Where the source contradicts itself or leaves a choice:

- E1 to E6, E8, E9: errors of Algorithm 6.1, corrected in `staircase`, which lists them
- E7: a worker is free when its running message ends (`Options.account_running`)
- A1: violators are those late in a walk that skips violators
- A2: forward-first draws a lessee for each message
- A3: a message that is sent back is the reply; one that is taken has none
- A4: requests are answered at once, also while a message runs
- A5: messages that are late anywhere are offered, too
- A6: the range counts the lessor, and goes upwards and around
- A7: a queued message that is late blocks all ahead of it
- A8: dynamic binding draws two different workers, the sender's among them
- A9: messages of an open search are set aside, not run
- A12: the time of state accesses is not part of laxity
- A13: the hash of a function's address is crc32 (`base.lessor`), unless a placement is given
- ours: windows whose parts nobody merges, and all operators before them, run on their lessors alone, in order
- ours: the messages of a window that closes run before all others, as does its marker
"""

from __future__ import annotations

from qod_magics.policies.dirigo.base import Options
from qod_magics.policies.dirigo.binding import (
    AcceptAndCheck,
    CentralRandom,
    LaxityBasedDirect,
    Parallel,
    Pipelined,
    PriorityBased,
    QueueBasedDirect,
    RejectSend,
    Sequential,
)

__all__ = [
    "AcceptAndCheck",
    "CentralRandom",
    "LaxityBasedDirect",
    "Options",
    "Parallel",
    "Pipelined",
    "PriorityBased",
    "QueueBasedDirect",
    "RejectSend",
    "Sequential",
]
