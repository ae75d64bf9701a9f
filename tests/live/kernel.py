"""A real IPython kernel in a process of its own, and what it holds of the machine."""

from __future__ import annotations

import os
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

import psutil
from jupyter_client import BlockingKernelClient, KernelManager

from qod_magics.notebook.replies import FROM_THE_START
from qod_magics.spark.servers.connection import CONNECT_MODE, REMOTE
from tests import leaks

MARK = "QOD_TEST_KERNEL"  #: in the environment of a kernel and of what it starts

GONE_S = 60.0  #: some seconds, on a machine that is busy with something else
START_S, CELL_S = 180.0, 300.0  #: the same for a kernel's start and for a cell, which may start servers

Holding = tuple[int, float]  #: a process: its id and when it began


class CellError(Exception):
    """A cell raised; the name of the error and what it said."""


class Kernel:
    """Starts at once, with a temporary directory of its own. `close` ends it in whatever state it is."""

    def __init__(self, directory: Path) -> None:
        self._household = Household()
        environment = {
            **surroundings(),
            "JUPYTER_RUNTIME_DIR": str(directory),
            "IPYTHONDIR": str(directory / "ipython"),
            **self._household.environment,
        }
        self._manager = KernelManager(connection_file=str(directory / "kernel.json"))
        self._manager.start_kernel(env=environment, cwd=str(directory), extra_arguments=[FROM_THE_START])
        self._client = self._connect()

    def _connect(self) -> BlockingKernelClient:
        client = self._manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=START_S)
        return client

    @property
    def pid(self) -> int:
        pid: int = self._manager.provisioner.pid
        return pid

    def run(self, code: str, timeout_s: float = CELL_S) -> str:
        """Run a cell; what it printed. Raises CellError."""
        printed: list[str] = []

        def hear(message: Mapping[str, object]) -> None:
            content = message["content"]
            assert isinstance(content, Mapping)
            if message["msg_type"] == "stream":
                printed.append(str(content["text"]))

        reply = self._client.execute_interactive(code, timeout=timeout_s, output_hook=hear)["content"]
        if reply["status"] != "ok":
            raise CellError(f"{reply['ename']}: {reply['evalue']}", "".join(printed))
        return "".join(printed)

    def restart(self) -> None:
        """What the button in a notebook does."""
        self._client.stop_channels()
        self._manager.restart_kernel(now=False)
        self._client = self._connect()

    def kill(self) -> None:
        """kill -9 of the kernel alone."""
        self._client.stop_channels()
        os.kill(self.pid, signal.SIGKILL)

    def look(self) -> Traces:
        """What is there of it and of all that it started, now."""
        return self._household.look()

    def close(self) -> None:
        """End it."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self._manager.cleanup_resources()
        self._household.close()


def surroundings() -> dict[str, str]:
    """The environment of a new kernel: that of the tests, but for what their own sessions set of Spark Connect."""
    return {name: value for name, value in os.environ.items() if name not in (CONNECT_MODE, REMOTE)}


class Household:
    """A kernel with all that it starts, found again by a mark in their environment and a temporary directory of their
    own, whatever else runs."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._directory = Path(tempfile.mkdtemp(prefix="k"))  # the name is short: Unix sockets in it may not be long
        self.environment = {MARK: self._mark, "TMPDIR": str(self._directory)}

    def look(self) -> Traces:
        """What is there of it now."""
        processes, ports = set(), set()
        for process in self._members():
            with suppress(psutil.Error):  # gone meanwhile
                processes.add((process.pid, process.create_time()))
                ports |= _ports(process)
        files = {str(path) for path in self._directory.iterdir()}
        return Traces(frozenset(processes), frozenset(ports), frozenset(files))

    def kernel(self) -> int:
        """The process id of its only kernel."""
        (found,) = (process.pid for process in self._members() if "ipykernel_launcher" in process.cmdline())
        return found

    def _members(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error):  # gone meanwhile, or another user's
                if process.environ().get(MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def close(self) -> None:
        """Remove the directory."""
        rmtree(self._directory, ignore_errors=True)


@dataclass(frozen=True)
class Traces:
    """All that a session in a kernel can leave on a machine."""

    processes: frozenset[Holding]
    ports: frozenset[int]  #: listening, of these processes
    files: frozenset[str]  #: in the temporary directory, whatever their names

    @staticmethod
    def of(pid: int) -> Traces:
        """Those of one process."""
        process = psutil.Process(pid)
        return Traces(frozenset({(pid, process.create_time())}), frozenset(_ports(process)), frozenset())

    def __or__(self, other: Traces) -> Traces:
        """What either holds."""
        return Traces(self.processes | other.processes, self.ports | other.ports, self.files | other.files)

    def left(self, before: Traces) -> list[str]:
        """What is there now and was not then."""
        said = []
        for pid, began in self.processes - before.processes:
            try:
                process = psutil.Process(pid)
                if process.create_time() == began and process.status() != psutil.STATUS_ZOMBIE:
                    said.append(f"process {pid}: {' '.join(process.cmdline())[:200]}")
            except psutil.Error:
                continue
        said += [f"port {port}" for port in sorted(self.ports - before.ports)]
        said += [f"file {name}" for name in sorted(self.files - before.files)]
        return said


def look() -> Traces:
    """Processes that came out of this test run, their ports, and the temporary directory."""
    processes, ports = set(), set()
    for pid, began in leaks.look().processes:
        processes.add((pid, began))
        with suppress(psutil.Error):
            ports |= _ports(psutil.Process(pid))
    files = {str(path) for path in Path(tempfile.gettempdir()).iterdir()}
    return Traces(frozenset(processes), frozenset(ports), frozenset(files))


def lingering(look: Callable[[], Traces], before: Traces, during: Traces) -> list[str]:
    """What there was `during` a session beyond `before` and does not go, or comes back."""
    deadline = time.monotonic() + GONE_S
    while look().left(before) and time.monotonic() < deadline:
        time.sleep(0.2)
    left = look().left(before)
    if not left:
        time.sleep(1.0)  # what comes back after all was gone: a directory that a dying process makes anew
        left = look().left(before)
    return left + left_in_common(during)


def left_in_common(during: Traces) -> list[str]:
    """What JVMs of these processes keep in the directories that all JVMs of a user share, by process id."""
    pids = {str(pid) for pid, _ in during.processes}
    return [str(path) for path in Path("/tmp").glob("hsperfdata_*/*") if path.name in pids]


def _ports(process: psutil.Process) -> set[int]:
    return {c.laddr.port for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN}
