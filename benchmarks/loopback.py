"""What it costs a task manager's start that shuffles in real-time mode listen on loopback: a jar on its class path.

    python benchmarks/loopback.py [--runs 10]

Each start is timed from the call to the moment when the server accepts connections. Starts with and without the jar
alternate, in an order that turns with every pair, after a pair that is not counted. Each kind has an archive of its own
with the classes of a query in micro-batches, made first in a cache that is thrown away.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median, stdev

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest

from qod_magics.errors import SetupError
from qod_magics.machine.cache import cache_dir
from qod_magics.session import first_start
from qod_magics.spark.servers import server
from qod_magics.spark.servers.server import LocalServer, ServerOptions


def no_jar(home: Path) -> Path:
    raise SetupError("left out")


def archived(jar: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_start, "MODES", ("microbatch",))
        if not jar:
            patch.setattr(server, "loopback_jar", no_jar)
        first_start.make_archives(print)


def start(jar: bool) -> float:
    """Seconds until a server listens."""
    with pytest.MonkeyPatch.context() as patch:
        if not jar:
            patch.setattr(server, "loopback_jar", no_jar)
        begun = time.monotonic()
        made = LocalServer("timed", ServerOptions())
    try:
        made.wait_until_listening()
        took = time.monotonic() - begun
        assert any(word.startswith("-XX:SharedArchiveFile") for word in made.child.command)
        assert jar is ("loopback" in made.child.command[made.child.command.index("-cp") + 1].split(os.pathsep)[0])
        return took
    finally:
        made.stop()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="pairs of starts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "jars").symlink_to(cache_dir() / "jars")
        os.environ["QOD_CACHE"] = folder
        for jar in (True, False):
            archived(jar)
            start(jar)
        took: dict[bool, list[float]] = {True: [], False: []}
        for run in range(options.runs):
            for jar in (True, False) if run % 2 else (False, True):
                took[jar].append(start(jar))
    for jar, name in ((False, "without the jar"), (True, "with the jar")):
        print(f"{name:<16} median {median(took[jar]):.2f} s ({min(took[jar]):.2f}-{max(took[jar]):.2f})")
    more = [with_it - without for with_it, without in zip(took[True], took[False], strict=True)]
    error = f" +- {stdev(more) / len(more) ** 0.5:.2f}" if len(more) > 1 else ""
    print(f"{'difference':<16} mean   {mean(more):.2f}{error} s (standard error, of {len(more)} pairs)")


if __name__ == "__main__":
    main()
