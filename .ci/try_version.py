"""Run the tests marked `versions` on other releases of Spark, each in an environment of its own.

    python .ci/try_version.py 4.1 4.2

An environment, `build/versions/RELEASE`, has the newest pyspark of that release in front of all packages of the
environment that runs this, and is made once. Where that pyspark can't be downloaded, a line says so, and that release
is left out. Ends with 0 when no test failed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = ("-m", "pytest", "tests/live", "-p", "no:randomly", "-m", "versions")
#: For the download of a release, and for its tests, seconds.
INSTALL_S, TESTS_S = 240, 480


class NotInstalledError(Exception):
    """A release can't be installed."""


def main(releases: list[str]) -> int:
    """Try each of them. Returns the exit code of the worst one."""
    worst = 0
    for release in releases:
        begun = time.monotonic()
        try:
            python = environment(release)
        except NotInstalledError as error:
            print(f"pyspark {release} is not tried: {error}", flush=True)
            continue
        installed = time.monotonic()
        code = tests(python)
        took = f"installed in {installed - begun:.0f} s, tests {time.monotonic() - installed:.0f} s"
        print(f"pyspark {release}: exit code {code}, {took}", flush=True)
        worst = max(worst, code)
    return worst


def environment(release: str) -> Path:
    """Return the Python of the environment with this release, made if it is not there. Raises NotInstalledError."""
    place = ROOT / "build" / "versions" / release
    python, made = place / "bin" / "python", place / ".made"
    if made.exists():
        return python
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=False)
    wanted = f"pyspark=={release}.*"
    words = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", wanted]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"its download took longer than {INSTALL_S} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalledError((lines or [f"exit code {done.returncode} of pip"])[-1][:200])
    (packages,) = place.glob("lib/python3*/site-packages")
    others = list(dict.fromkeys(path for path in sys.path if Path(path).name == "site-packages"))
    (packages / "others.pth").write_text(f"import site; list(map(site.addsitedir, {others!r}))\n")
    made.touch()
    return python


def tests(python: Path) -> int:
    """Run them with this Python, for a limited time. Returns pytest's exit code."""
    surroundings = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    running = subprocess.Popen([str(python), *TESTS], cwd=ROOT, env=surroundings, stdin=subprocess.DEVNULL)
    try:
        return running.wait(TESTS_S)
    except subprocess.TimeoutExpired:
        print(f"not done within {TESTS_S} s", flush=True)
        running.send_signal(signal.SIGINT)  # it can still stop what it started
        try:
            running.wait(45)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
