"""The watchdog, run as on a system that is not Linux: nothing can be pinned, the command does not ask to be killed with
its parent, and there is no /proc to find processes in. A script, in the place of `qod_magics/machine/watchdog.py`."""

from __future__ import annotations

import os
import runpy
import subprocess  # noqa: F401  # which goes by the platform when it is imported
import sys
from pathlib import Path

WATCHDOG = Path(__file__).parents[2] / "qod_magics" / "machine" / "watchdog.py"

if __name__ == "__main__":
    listdir = os.listdir
    os.listdir = lambda path=".": [] if path == "/proc" else listdir(path)
    for name in ("sched_getaffinity", "sched_setaffinity"):
        if hasattr(os, name):
            delattr(os, name)
    sys.platform = "darwin"
    runpy.run_path(str(WATCHDOG), run_name="__main__")
