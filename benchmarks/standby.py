"""What a task manager costs that stands by, warm and without a query: CPU and memory of its processes.

python benchmarks/standby.py --seconds 60
"""

from __future__ import annotations

import argparse
import sys
import time

import psutil

from qod_magics.core.snapshot import NodeState
from qod_magics.session.session import Session
from qod_magics.spark.servers.cpu import cpu_seconds

#: How long a standby may take to be warm, seconds.
WARM_S = 180.0


def standby_of(session: Session) -> psutil.Process:
    """The process of the session's task manager that stands by. Raises TimeoutError."""
    nodes = session.runtime.nodes
    assert nodes is not None
    end = time.monotonic() + WARM_S
    while NodeState.STANDBY not in nodes.states().values():
        if time.monotonic() > end:
            raise TimeoutError(f"no task manager stands by after {WARM_S:g} s: {nodes.text()}")
        time.sleep(0.5)
    up = {m.server.child.pid for m in session.runtime.task_managers.values() if m.server is not None}
    servers = [p for p in psutil.Process().children(recursive=True) if any("SparkConnect" in w for w in p.cmdline())]
    mine = [p for p in servers if not up & {p.pid, *(parent.pid for parent in p.parents())}]
    return mine[0]


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU and memory of a task manager that stands by.")
    parser.add_argument("--seconds", type=float, default=60.0)
    words = parser.parse_args()
    with Session.up(task_managers=1, max_task_managers=2, warm=True) as session:
        server = standby_of(session)
        time.sleep(10.0)  # what its warm-up left is done
        before, begun = cpu_seconds(server.pid), time.monotonic()
        time.sleep(words.seconds)
        share = (cpu_seconds(server.pid) - before) / (time.monotonic() - begun)
        memory = sum(each.memory_info().rss for each in (server, *server.children(recursive=True)))
        print(f"CPU {100 * share:.2f} % of one core over {words.seconds:g} s; memory {memory / 2**20:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
