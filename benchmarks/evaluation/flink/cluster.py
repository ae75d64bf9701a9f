"""A Flink cluster of two JVMs on the loopback interface, which end with this process."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.evaluation.flink.environment import Environment
from qod_magics.errors import SetupError
from qod_magics.machine.child import Child
from qod_magics.machine.java import HOST, find_java, free_ports

START_S = 120.0
SUBMIT_S = 180.0
_JAVA = ("-XX:+UseSerialGC", "-XX:-UsePerfData")  # the latter's file in /tmp would outlive a kill
_SUBMIT = Path(__file__).with_name("submit.py")


class Cluster:
    """A JobManager, and a TaskManager on cores of its own.

    Args:
        installed: where PyFlink is.
        cpus: the TaskManager's cores.
        others: cores of the JobManager and of the client that submits jobs.

    Raises:
        SetupError: it did not come up; nothing is left behind.

    """

    def __init__(self, installed: Environment, cpus: set[int], others: set[int]) -> None:
        self._installed = installed
        self._others = others
        self._children: list[Child] = []
        self.directory = Path(tempfile.mkdtemp(prefix="qod-flink-"))
        self._rpc, self._rest = free_ports(2)
        try:
            self._configure()
            self._start("jobmanager", others)
            self._start("taskmanager", cpus)
            self._await()
        except BaseException:
            self.stop()
            raise

    def submit(
        self,
        options: Mapping[str, str],
        functions: Mapping[str, str],
        definitions: Sequence[str],
        inserts: Sequence[str],
    ) -> str:
        """Start one job of these statements, with Java functions (class -> source); its id, once all its tasks run.

        Raises:
            SetupError: Flink refuses it, or it does not run in time.

        """
        asked = self.directory / "statements.json"
        reached = {"execution.target": "remote", "rest.address": HOST, "rest.port": str(self._rest)}
        options = {**reached, **options}
        given = {"options": options, "functions": functions, "definitions": definitions, "inserts": inserts}
        asked.write_text(json.dumps(given), "utf-8")
        log = self.directory / "submit.log"
        client = Child([self._installed.python, _SUBMIT, asked], self._variables(), log_path=log, cpus=self._others)
        try:
            ended = client.wait(SUBMIT_S)
        finally:
            client.stop()
        told = [line for line in log.read_text("utf-8", "replace").splitlines() if line.startswith("job ")]
        if ended != 0 or not told:
            raise SetupError(f"Flink did not take the job: {_cause(log.read_text('utf-8', 'replace'))}")
        job = told[-1].split()[1]
        self._until(lambda: self._runs(job), "the job does not run")
        return job

    def get(self, path: str) -> Any:
        """GET from its REST API."""
        with _DIRECT.open(f"http://{HOST}:{self._rest}{path}", timeout=10) as answer:
            return json.load(answer)

    def stop(self) -> None:
        """End both, and remove their files."""
        for child in reversed(self._children):
            child.stop(5.0)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _configure(self) -> None:
        home = self._installed.home
        conf = self.directory / "conf"
        for name in ("conf", "log", "tmp"):
            (self.directory / name).mkdir()
        for file in home.glob("conf/log4j*.properties"):
            shutil.copy(file, conf)
        quiet = "\nlogger.names.name = org.apache.flink.metrics.MetricGroup\nlogger.names.level = ERROR\n"
        with (conf / "log4j-console.properties").open("a", encoding="utf-8") as logging:
            logging.write(quiet)
        opened = _opened(home / "conf" / "config.yaml")
        settings = {
            "env.java.opts.all": " ".join([*opened, *_JAVA, f"-Djava.io.tmpdir={self.directory / 'tmp'}"]),
            "jobmanager.rpc.address": HOST,
            "jobmanager.rpc.port": self._rpc,
            "jobmanager.bind-host": HOST,
            "taskmanager.host": HOST,
            "taskmanager.bind-host": HOST,
            "rest.address": HOST,
            "rest.bind-address": HOST,
            "rest.port": self._rest,
            "jobmanager.memory.process.size": "1024m",
            "taskmanager.memory.process.size": "1728m",
            "taskmanager.numberOfTaskSlots": 4,
            "parallelism.default": 1,
            "metrics.fetcher.update-interval": 1000,
            "io.tmp.dirs": self.directory / "tmp",
        }
        (conf / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()), "utf-8")

    def _variables(self) -> dict[str, str | None]:
        return {
            "FLINK_HOME": str(self._installed.home),
            "FLINK_CONF_DIR": str(self.directory / "conf"),
            "FLINK_LOG_DIR": str(self.directory / "log"),
            "FLINK_PID_DIR": str(self.directory / "tmp"),
            "JAVA_HOME": str(find_java().home),
            "PYTHONPATH": None,
        }

    def _start(self, which: str, cpus: set[int]) -> None:
        self._children.append(
            Child(
                [self._installed.home / "bin" / f"{which}.sh", "start-foreground"],
                self._variables(),
                log_path=self.directory / f"{which}.log",
                cpus=cpus,
                remove=[self.directory],
            )
        )

    def _await(self) -> None:
        self._until(lambda: self.get("/overview")["slots-total"] > 0, "the TaskManager did not report")

    def _runs(self, job: str) -> bool:
        found = self.get(f"/jobs/{job}")
        return all(vertex["status"] == "RUNNING" for vertex in found["vertices"])

    def _until(self, holds: Any, otherwise: str) -> None:
        deadline = time.monotonic() + START_S
        while True:
            for child in self._children:
                if not child.alive():
                    raise SetupError(f"Flink ended: {_cause(child.tail(200))}")
            try:
                if holds():
                    return
            except (OSError, urllib.error.URLError, ValueError):
                pass
            if time.monotonic() > deadline:
                raise SetupError(f"Flink: {otherwise} within {START_S:g} s")
            time.sleep(0.25)


#: Without a proxy: all processes are on this machine.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _opened(config: Path) -> list[str]:
    """The --add-exports and --add-opens that Flink ships for current Java."""
    return [word for word in config.read_text("utf-8").split() if word.startswith(("--add-exports", "--add-opens"))]


def _cause(log: str) -> str:
    """The most telling line of a log."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if "Exception" in line or "Error" in line]
    return (telling or lines or ["its log is empty"])[-1][:400]
