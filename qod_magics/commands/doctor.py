"""`python -m qod_magics doctor`: check the requirements on this machine, and say how to meet missing ones."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from qod_magics.errors import QodError, SetupError
from qod_magics.machine import class_data
from qod_magics.machine import cores as machine
from qod_magics.machine.child import check_user, is_noexec, temporary_root
from qod_magics.machine.cores import can_pin, core_count, every_core, is_limited
from qod_magics.machine.jars import JarSet, broker_set, connector_set, resolve
from qod_magics.machine.java import find_java
from qod_magics.machine.releases import (
    CONNECTOR_FAULT,
    SPARK_SUPPORTED,
    SPARK_VERSION,
    check_server,
    installed_spark,
    is_supported,
    may_have_fault,
    release_at,
)
from qod_magics.spark.servers.connection import call_within, connect, hidden, let_go
from qod_magics.spark.servers.remote import asked_for

GIGABYTE = 1e9
#: Memory of a task manager and of the embedded broker, as measured on a small machine, in bytes.
TASK_MANAGER_BYTES, BROKER_BYTES = 0.6 * GIGABYTE, 0.4 * GIGABYTE
DISK_BYTES = 2 * GIGABYTE
#: For a Connect server to answer, seconds.
PATIENCE_S = 10.0
FETCH = "python -m qod_magics doctor --fetch"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `ok`: True: met, False: required but missing, None: recommended but missing."""

    what: str
    ok: bool | None
    found: str
    to_do: str = ""

    def __str__(self) -> str:
        mark = {True: "ok", False: "NO", None: "--"}[self.ok]
        advice = f"\n{'':>24}to do: {self.to_do}" if self.to_do else ""
        return f"  {mark}  {self.what:<18}{self.found}{advice}"


def main(argv: list[str] | None = None, patience_s: float = PATIENCE_S) -> int:
    """Print the report. Returns 0 if every requirement is met, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m qod_magics doctor", description="Look for all that qod_magics needs and say what is missing."
    )
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="download the jars now, and archive their classes for faster starts; nothing needs the network later",
    )
    parser.add_argument(
        "--connect",
        metavar="URL",
        default=asked_for(),
        help="a Spark Connect server to look at, too: sc://HOST:PORT; by default the one that SPARK_REMOTE names",
    )
    options = parser.parse_args(argv)
    if options.fetch:
        fetch()
    healthy = True
    for finding in findings(options.connect, patience_s):
        print(finding, flush=True)
        healthy = healthy and finding.ok is not False
    print("Everything needed is here." if healthy else "Something needed is missing: see the lines with NO.")
    return 0 if healthy else 1


def fetch() -> None:
    """Download the jars missing from the cache, and archive their classes; failures are printed, and show in the
    report."""
    for jars in (_connector, broker_set):
        try:
            resolve(jars())
        except QodError as error:
            print(error, file=sys.stderr)
    if not _all_cached():
        return
    from qod_magics.session.resources import make_archives

    try:
        make_archives(lambda text: print(text, flush=True))
    except QodError as error:
        print(error, file=sys.stderr)


def findings(server: str | None = None, patience_s: float = PATIENCE_S) -> Iterator[Finding]:
    """Yield all findings, each checked lazily; also about the Connect server at this URL."""
    checks: tuple[Callable[[], Finding], ...] = (
        _python,
        _java,
        _pyspark,
        _spark_home,
        *([] if server is None else [lambda: _connect_server(server, patience_s)]),
        lambda: _jars("Spark's connector", _connector),
        lambda: _jars("Kafka broker", broker_set),
        _archives,
        _kafka_client,
        _loopback,
        _user,
        _temporary,
        _cores,
        _memory,
        _jupyter,
    )
    for check in checks:
        yield check()


def _python() -> Finding:
    ok = sys.version_info >= (3, 11)
    return Finding(
        "Python", ok, f"{platform.python_version()}, {sys.executable}", "" if ok else "install Python 3.11 or newer"
    )


def _java() -> Finding:
    try:
        java = find_java()
    except QodError as error:
        found, _, to_do = str(error).partition(". ")
        return Finding("Java", False, found, to_do)
    return Finding("Java", True, f"{java.version} from {java.origin}, {java.path}")


def _pyspark() -> Finding:
    try:
        spark = installed_spark()
    except QodError as error:
        return Finding("pyspark", False, "not installed", str(error).partition(": ")[2])
    install = f"pip install 'pyspark[connect]=={SPARK_VERSION}'"
    if not is_supported(spark):
        return Finding(
            "pyspark", False, f"{spark}; supported: {SPARK_SUPPORTED[0]} to before {SPARK_SUPPORTED[1]}", install
        )
    missing = [name for name in ("grpc", "pandas", "pyarrow") if find_spec(name) is None]
    if missing:
        return Finding("pyspark", False, f"{spark}, without {', '.join(missing)} for Spark Connect", install)
    note = "" if spark == SPARK_VERSION else f"; {SPARK_VERSION} runs more queries in real time"
    return Finding("pyspark", True, spark + note)


def _spark_home() -> Finding:
    if not os.environ.get("SPARK_HOME"):
        inside = _version("pyspark")
        if inside is None:
            return Finding("Spark", None, "none: it comes with pyspark, and SPARK_HOME is not set")
        return Finding("Spark", True, f"{inside}, the one inside pyspark (SPARK_HOME is not set)")
    home = _home()
    if not any((home / "jars").glob("spark-connect*.jar")):
        return Finding("Spark", False, f"{home} has no Spark Connect", "set SPARK_HOME to a Spark 4, or unset it")
    release = release_at(home)
    return _server_of(release, "Spark", f"{release or 'unknown release'}, {home} (SPARK_HOME)", str(home))


def _connect_server(url: str, patience_s: float) -> Finding:
    try:
        spark = connect(url, patience_s=patience_s)
        try:
            release = str(call_within(lambda: spark.version, patience_s, "its version"))
        finally:
            let_go(spark, 2.0)
    except (QodError, ImportError) as error:
        return Finding("Connect server", False, hidden(url), str(error))
    finding = _server_of(release, "Connect server", f"{release} at {hidden(url)}", hidden(url))
    if not finding.ok or not may_have_fault(release):
        return finding
    fault, to_do = CONNECTOR_FAULT
    return replace(finding, ok=None, found=f"{finding.found}; {fault}", to_do=to_do)


def _server_of(release: str | None, what: str, found: str, where: str) -> Finding:
    """Return a Spark that is to be used as a server by the installed client."""
    try:
        if release is not None:
            check_server(release, where)
    except SetupError as error:
        why, _, to_do = str(error).partition("; ")
        return Finding(what, False, why, to_do)
    return Finding(what, True, found)


def _home() -> Path:
    """Return the directory that SPARK_HOME names."""
    return Path(os.environ["SPARK_HOME"])


def _connector() -> JarSet:
    """Return the connector's jars for the Spark that local servers run."""
    return connector_set(release_at(_home()) if os.environ.get("SPARK_HOME") else None)


def _jars(what: str, which: Callable[[], JarSet]) -> Finding:
    try:
        jars = which()
    except QodError as error:
        return Finding(what, False, "unknown", str(error))
    files = jars.cached()
    if files is None:
        return Finding(what, False, "jars not downloaded yet", f"{FETCH}  (or wait for it at the first start)")
    size = sum(file.stat().st_size for file in files) / 1e6
    return Finding(what, True, f"{len(files)} jars, {size:.0f} MB in {jars.directory}")


def _archives() -> Finding:
    made = class_data.archives()
    if not made:
        return Finding("Archived classes", None, "none: starts take longer", FETCH if _all_cached() else "")
    size = sum(file.stat().st_size for file in made) / 1e6
    return Finding("Archived classes", True, f"{len(made)} archives, {size:.0f} MB in {class_data.directory()}")


def _all_cached() -> bool:
    """Return whether all jars are in the cache; not, where it is unknown which ones are needed."""
    try:
        return all(each().cached() is not None for each in (_connector, broker_set))
    except QodError:
        return False


def _kafka_client() -> Finding:
    found = _version("confluent-kafka")
    return Finding(
        "Kafka client", found is not None, found or "not installed", "" if found else "pip install confluent-kafka"
    )


def _loopback() -> Finding:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=2.0):
                pass
    except OSError as error:
        return Finding(
            "Loopback ports", False, f"127.0.0.1 can't be used: {error}", "allow local connections (firewall, sandbox)"
        )
    return Finding("Loopback ports", True, "127.0.0.1 can be bound and reached")


def _user() -> Finding:
    try:
        check_user()
    except SetupError as error:
        found, _, to_do = str(error).partition("; ")
        return Finding("User", False, found, to_do)
    return Finding("User", True, f"user id {os.getuid()}" if hasattr(os, "getuid") else "any")


def _temporary() -> Finding:
    place = temporary_root()
    free = shutil.disk_usage(place).free
    found = f"{place}, {free / GIGABYTE:.1f} GB free"
    if is_noexec(place):
        to_do = "set TMPDIR or QOD_CACHE to a place on a file system without the option noexec"
        return Finding("Temporary files", False, f"{place} is mounted noexec: no native library loads from it", to_do)
    if str(place) != tempfile.gettempdir():
        found += f" ({tempfile.gettempdir()} is mounted noexec)"
    if free < DISK_BYTES:
        return Finding("Temporary files", None, found, f"set TMPDIR to a place with {DISK_BYTES / GIGABYTE:.0f} GB")
    return Finding("Temporary files", True, found)


def _cores() -> Finding:
    mine = every_core()
    if not can_pin():
        return Finding(
            "Cores",
            None,
            f"{len(mine)}; this system can't pin processes to them: task managers run on any, and their CPU is "
            "measured by process",
        )
    found = f"{len(mine)} of {core_count()}, processes can be pinned to {', '.join(map(str, mine))}"
    if (quota := machine.HERE.quota()) is not None:
        found += f"; a quota of this container allows {quota:g} of them at a time"
        found += ": task managers run on any" if is_limited() else ""
    if len(mine) < 2 or (quota is not None and quota < 2):
        return Finding("Cores", None, found, "take two or more, for task managers beside the broker and the notebook")
    return Finding("Cores", True, found)


def _memory() -> Finding:
    import psutil

    memory, limit = psutil.virtual_memory(), machine.HERE.memory()
    free, total = memory.available, memory.total
    if limit is not None and limit.bytes < total:
        free, total = min(free, limit.free), limit.bytes
    found = f"{free / GIGABYTE:.1f} GB free of {total / GIGABYTE:.1f} GB"
    if total < memory.total:
        found += ", this container's limit"
    need = BROKER_BYTES + 2 * TASK_MANAGER_BYTES
    if free < need:
        return Finding("Memory", None, found, f"free {need / GIGABYTE:.1f} GB for the broker and two task managers")
    return Finding("Memory", True, found)


def _jupyter() -> Finding:
    needed = {name: _version(name) for name in ("ipython", "ipykernel", "ipywidgets")}
    missing = [name for name, found in needed.items() if found is None]
    if missing:
        return Finding("Jupyter", False, f"without {', '.join(missing)}", f"pip install {' '.join(missing)}")
    found = ", ".join(f"{name} {number}" for name, number in needed.items())
    if lab := _version("jupyterlab"):
        return Finding("Jupyter", True, f"{found}, jupyterlab {lab}")
    return Finding("Jupyter", None, f"{found}, no JupyterLab here", "pip install jupyterlab, unless it runs elsewhere")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


if __name__ == "__main__":
    sys.exit(main())
