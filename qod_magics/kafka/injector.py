"""The data injector, seen from the notebook: a separate process that sends a scenario and dies with its parent."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from shutil import rmtree
from typing import Any

from qod_magics.errors import KafkaError, SetupError, UsageProblem
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.scenario import Scenario
from qod_magics.kafka.tokens import Tokens
from qod_magics.machine.child import Child, temporary

#: A scenario, its JSON form, or the path of a JSON file.
ScenarioForm = Scenario | Mapping[str, Any] | str | PathLike[str]

#: Client settings as JSON for the injector: other users see a process's arguments, but not its environment.
CONFIG_VARIABLE = "QOD_INJECTOR_CLIENT_CONFIG"
#: Exit codes of the injector: all rows acknowledged, or stopped by a signal; some rows failed or were never sent.
COMPLETE, INCOMPLETE = 0, 3

_PACKAGES = Path(__file__).resolve().parents[2]
_LOOK_S = 0.05
_END_S = 30.0  #: covers its wait for acknowledgements, on a busy machine too


class Injector:
    """Sends a scenario to Kafka from a separate process: open-loop, not slowed by the notebook's load.

    Creates missing topics. Create it, `start()` it, `stop()` it; or use it as a context manager.

    Args:
        scenario: what to send, with relative paths of data from the working directory; or the path of a JSON file with
            it, with paths from that file's folder.
        kafka_bootstrap: `host:port` of the broker.
        client_config: settings of the producer (librdkafka's names), strings and numbers.
        record: the file for the JSON lines that `qod_magics.kafka.sender.Record` describes; None: a temporary one.
        speed: scenario seconds per second.
        cpus: cores to pin it to, default all.

    Raises:
        ScenarioError: the scenario can't be read.

    """

    def __init__(
        self,
        scenario: Scenario | str | Path,
        kafka_bootstrap: str,
        client_config: Mapping[str, Any] | None = None,
        record: Path | None = None,
        speed: float = 1.0,
        cpus: set[int] | None = None,
        *,
        run: Callable[..., Child] = Child,
    ) -> None:
        self._run = run
        self.scenario = scenario if isinstance(scenario, Scenario) else Scenario.read(scenario)
        self.bootstrap = kafka_bootstrap
        self.speed = speed
        self.cpus = cpus
        self._config = dict(client_config or {})
        self._record_path = record
        self._child: Child | None = None
        self._directory: Path | None = None
        self._lines = _Lines()

    @classmethod
    def into(
        cls,
        kafka: Kafka,
        scenario: ScenarioForm,
        record: str | PathLike[str] | None = None,
        cpus: set[int] | None = None,
    ) -> Injector:
        """Return an injector into this cluster, not started yet. Raises ScenarioError: the scenario can't be read."""
        made = Scenario.from_json(scenario) if isinstance(scenario, Mapping) else scenario
        return cls(
            made if isinstance(made, Scenario) else Path(made),
            kafka.bootstrap,
            kafka.client_config(),
            record=None if record is None else Path(record),
            cpus=cpus,
        )

    def __repr__(self) -> str:
        topics = ", ".join(topic.topic for topic in self.scenario.topics)
        does = f"at {self.position():.0f} of {self.scenario.duration_s:g} s" if self.alive() else "does not run"
        return f"injector of {topics} into Kafka at {self.bootstrap}: {does}"

    @property
    def pid(self) -> int | None:
        """Process id of the injector while it runs."""
        return self._child.pid if self._child is not None and self._child.alive() else None

    def start(self, timeout_s: float = 60.0) -> None:
        """Start the process and wait until its data is ready, the broker has answered and the first row is due.

        Raises:
            KafkaError: it is already started, or ended at once; the message says why.
            SetupError: the process can't be started, or there is no room for its files.
            UsageProblem: its record is a file that no injector wrote.

        """
        if self._child is not None:
            raise KafkaError("The injector was started before: make a new one")
        self._directory = temporary("qod-injector-")
        try:
            self._spawn(self._directory)
            deadline = time.monotonic() + timeout_s
            while self._read().started_s is None:
                if not self._child_alive():
                    raise KafkaError(f"The injector did not start: {self._last_words()}")
                if time.monotonic() > deadline:
                    raise KafkaError(f"The injector did not start within {timeout_s:g} s: {self._last_words()}")
                time.sleep(_LOOK_S)
        except BaseException as error:
            self.stop()
            if isinstance(error, OSError):
                raise SetupError(f"The injector can't be started: {error}.") from error
            raise

    def position(self) -> float:
        """Position in the scenario: scenario seconds since the start; 0 before it, constant after the end."""
        lines = self._lines if self._directory is None else self._read()
        if lines.ended_s is not None:
            return min(lines.ended_s, self.scenario.duration_s)
        if lines.started_s is None:
            return 0.0
        return min((time.monotonic() - lines.started_s) * self.speed, self.scenario.duration_s)

    def phase(self) -> str | None:
        """Return the name of the scenario's current phase."""
        return self.scenario.phase(self.position())

    def counts(self) -> dict[str, dict[str, Any]]:
        """Return the last line of the record by topic: scheduled, sent, acknowledged, errors, late ... since the
        start."""
        return dict((self._lines if self._directory is None else self._read()).counts)

    def notes(self) -> tuple[str, ...]:
        """Messages of the injector so far: late or failed rows, a lost connection."""
        return tuple((self._lines if self._directory is None else self._read()).notes)

    def alive(self) -> bool:
        """True while the process runs."""
        return self._child_alive()

    def wait(self, timeout_s: float | None = None) -> dict[str, dict[str, Any]] | None:
        """Wait for the end of the scenario: the final counts, or None when `timeout_s` seconds passed first.

        Raises:
            KafkaError: it was not started, or ended by an error or a signal.

        """
        if self._child is None:
            raise KafkaError("The injector does not run: start() it first")
        code = self._child.wait(timeout_s)
        if code is None:
            return None
        counts, said = self.counts(), self._last_words()
        self._close()
        if code not in (COMPLETE, INCOMPLETE):
            raise KafkaError(f"The injector ended with code {code}: {said}")
        return counts

    def stop(self) -> dict[str, dict[str, Any]]:
        """Stop sending and end the process; returns the final counts. Does nothing if it has ended."""
        if self._child is not None:
            self._child.end(_END_S)
            self._read()
        self._close()
        return self.counts()

    def __enter__(self) -> Injector:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _spawn(self, directory: Path) -> None:
        scenario = directory / "scenario.json"
        scenario.write_text(json.dumps(self.scenario.within(Path.cwd()).to_json()), "utf-8")
        try:
            named = {name: str(value) if isinstance(value, Tokens) else value for name, value in self._config.items()}
            config = json.dumps(named)
        except TypeError as problem:
            raise KafkaError(f"client_config can't be serialized ({problem}): give strings and numbers") from None
        self._lines = _Lines(self._record_path or directory / "record.jsonl")
        _check_record(self._lines.path)
        self._lines.path.unlink(missing_ok=True)  # an earlier run's record would look like a start
        self._child = self._run(
            [
                *(sys.executable, "-c", f"import sys; sys.path.insert(0, {str(_PACKAGES)!r}); {_RUN}"),
                *(scenario, "--bootstrap", self.bootstrap, "--record", self._lines.path.absolute()),
                *("--speed", repr(self.speed)),
            ],
            {CONFIG_VARIABLE: config},
            log_path=directory / "injector.log",
            cpus=self.cpus,
            remove=[directory],
        )

    def _read(self) -> _Lines:
        self._lines.read()
        return self._lines

    def _child_alive(self) -> bool:
        return self._child is not None and self._child.alive()

    def _last_words(self) -> str:
        said = self._child.tail(1) if self._child is not None else ""
        return said.strip() or "it printed nothing"

    def _close(self) -> None:
        child, directory = self._child, self._directory
        self._child = self._directory = None
        if child is not None:
            child.stop(5.0)
        if directory is not None:
            rmtree(directory, ignore_errors=True)


_RUN = "from qod_magics.commands.inject import main; sys.exit(main(sys.argv[1:]))"


def _check_record(path: Path) -> None:
    """Raises UsageProblem for a file that an injector did not write."""
    try:
        with path.open("rb") as file:
            first = file.readline(1000)
    except FileNotFoundError:
        return
    except OSError as problem:
        raise UsageProblem(f"record={str(path)!r} can't be read ({problem.strerror}): choose another") from None
    if first and not first.startswith(b'{"kind":'):
        raise UsageProblem(f"record={str(path)!r} is a file that no injector wrote: choose another", rule="own file")


class _Lines:
    """The record as read so far. Any thread may read on: a scenario's runner does so beside the notebook."""

    def __init__(self, path: Path = Path()) -> None:
        self.path = path
        self.started_s: float | None = None  #: of the monotonic clock, which all processes of a machine share
        self.ended_s: float | None = None  #: scenario seconds
        self.counts: dict[str, dict[str, Any]] = {}
        self.notes: list[str] = []
        self._offset = 0
        self._reading = threading.Lock()

    def read(self) -> None:
        """Read the complete new lines."""
        with self._reading:  # two that read the same lines would skip as many of the next
            try:
                with self.path.open("rb") as file:
                    file.seek(self._offset)
                    new = file.read()
            except OSError:
                return
            whole = new[: new.rfind(b"\n") + 1]
            self._offset += len(whole)
            for text in whole.splitlines():
                self._take(json.loads(text))

    def _take(self, line: dict[str, Any]) -> None:
        if line["kind"] == "start":
            self.started_s = line["monotonic_s"]
        elif line["kind"] == "counts":
            self.counts[line["topic"]] = line
        elif line["kind"] == "note":
            self.notes.append(line["text"])
        elif line["kind"] == "end":
            self.ended_s = line["position_s"]
