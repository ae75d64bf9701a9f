"""The part of a session that others than its notebook see: hooks, metrics, and a run without a notebook."""

from __future__ import annotations

import asyncio
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qod_magics.errors import QueryError, UsageProblem
from qod_magics.monitoring.alarms import GIVEN_UP, SILENT, STARVED
from qod_magics.monitoring.door import Door, Health, Telemetry, Textfile, default_token, token_in
from qod_magics.monitoring.metrics import SessionCollector, Told
from qod_magics.monitoring.monitor import Call, Monitor

if TYPE_CHECKING:
    from qod_magics.controller import Controller
    from qod_magics.core.runtime import FeedRows
    from qod_magics.spark.runtime import SparkRuntime

#: Seconds for which `run` tolerates a minimum that does not fit, and a silent controller.
TOLERATE_S = 300.0
#: Seconds between two looks of `run`.
LOOK_S = 0.2


class Outlets:
    """Where a session's metrics go: to nowhere until asked for, then to a port, a file, a collector of OpenTelemetry.

    Args:
        monitor: the session's.
        told: what else metrics are read from.
        health: why the session is not healthy.

    """

    def __init__(self, monitor: Monitor, told: Callable[[], Told], health: Health) -> None:
        self.collector = SessionCollector(monitor, told)
        self._monitor, self._health = monitor, health
        self._door: Door | None = None
        self._file: Textfile | None = None
        self._token: Path | None = None
        self._telemetry: Telemetry | None = None

    def __repr__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Return where they go, one line."""
        to = []
        if self._door is not None:
            to.append(f"at {self._door.url} with the bearer token in {self._token}")
        if self._file is not None:
            to.append(f"in {self._file.path}")
        if self._telemetry is not None:
            to.append("exported by OTLP, as the environment says (OTEL_EXPORTER_OTLP_ENDPOINT)")
        if to:
            return f"metrics are {' and '.join(to)}"
        return "metrics go nowhere: %qod metrics --port N, --file FILE or --otlp"

    def serve(self, port: int, token: Path) -> None:
        """Serve them; a server of before ends. Raises UsageProblem."""
        secret = token_in(token)
        if self._door is not None and self._door.port == port:
            self._end_door()  # else the port is taken
        door = Door(port, self.collector, self._health, secret)
        self._end_door()
        self._door, self._token = door, token

    def write(self, path: Path) -> None:
        """Write them to a file after each cycle; another one of before is removed. Raises UsageProblem."""
        if self._file is not None and self._file.path == path:
            return
        written = Textfile(path, self.collector)
        self._end_file()
        self._file = written

    def export(self, session: str) -> None:
        """Export them by OTLP. Raises SetupError."""
        if self._telemetry is None:
            self._telemetry = Telemetry(self.collector, session)

    def cycle(self, _: object) -> None:
        """Note that a cycle has ended."""
        if self._file is not None:
            self._file.due()

    def close(self) -> None:
        """Stop serving and exporting, and remove the file."""
        self._end_door()
        self._end_file()
        if self._telemetry is not None:
            self._telemetry.close()
            self._telemetry = None

    def _end_door(self) -> None:
        if self._door is not None:
            self._door.close()
            self._door = None

    def _end_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Outside:
    """What `session.Session` offers to others than its notebook."""

    id: str
    runtime: SparkRuntime
    controller: Controller
    monitor: Monitor
    _outlets: Outlets

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Return whether it has not ended."""

    @abstractmethod
    def down(self, *, finish_s: float = 0.0) -> Sequence[str]:
        """Stop everything; returns what could not be stopped, one line each."""

    def on_event(self, hook: Call | str, *, kinds: Collection[str] = ()) -> Callable[[], None]:
        """Call a function with each `Alarm` from now on, or post it as JSON to a URL. Returns what ends that.

        Each hook has a thread of its own: a slow one delays nothing, and one that begins to fail is an entry of the
        decision log. Of more than 100 alarms that wait for a hook, the oldest are left out and counted. Alarms that are
        open already are not told again.

        Args:
            hook: a function of one argument, or an http or https URL.
            kinds: of alarms: "starved", "given-up", "suspended", "target-missed", "rows-deleted", "controller-silent";
                empty: all.

        Raises:
            UsageProblem: it is neither a function nor such a URL, or there is no such kind.

        """
        return self.monitor.on(hook, kinds)

    def metrics(
        self,
        *,
        port: int | None = None,
        file: str | os.PathLike[str] | None = None,
        token_file: str | os.PathLike[str] | None = None,
        otlp: bool = False,
        off: bool = False,
    ) -> str:
        """Serve metrics for Prometheus on the loopback interface, write them to a file after each cycle, or export them
        for OpenTelemetry. Returns where they go, one line; without arguments it changes nothing.

        Args:
            port: of `/metrics` and `/healthz`; 0: a free one.
            file: for node-exporter's textfile collector, `NAME.prom`; it is removed when the session ends.
            token_file: holds the token that `/metrics` asks for; made if there is none. Default: one of the user's.
            otlp: export them by OTLP over HTTP, as the environment variables of OpenTelemetry's SDK say.
            off: stop all.

        Raises:
            UsageProblem: the port is taken, or a file can't be written or read.
            SetupError: the SDK is not installed (`pip install 'qod-magics[otel]'`).

        """
        if off and (otlp or (port, file, token_file) != (None, None, None)):
            raise UsageProblem("metrics must be either on or off, got --off with another option; leave one out")
        if token_file is not None and port is None:
            raise UsageProblem("--token-file must go with a port, got none; add --port N", option="--port")
        if off:
            self._outlets.close()
        if port is not None:
            self._outlets.serve(port, default_token() if token_file is None else _path(token_file))
        if file is not None:
            self._outlets.write(_path(file))
        if otlp:
            self._outlets.export(self.id)
        return self._outlets.text()

    async def run(self, for_s: float | None = None, *, tolerate_s: float = TOLERATE_S) -> None:
        """Wait until the session ends, at most `for_s` seconds, without blocking the event loop.

        Args:
            for_s: seconds; None: until `down`.
            tolerate_s: seconds for which the minimum accuracies may not fit on a task manager, and for which the
                controller may decide nothing.

        Raises:
            QueryError: a query was given up; or the tolerance is used up. `rule` says which, `value` has the cause.

        """
        deadline = None if for_s is None else time.monotonic() + for_s
        while self.alive and (deadline is None or time.monotonic() < deadline):
            self.monitor.tick()
            problem = self.problem(tolerate_s)
            if problem is not None:
                raise problem
            await asyncio.sleep(LOOK_S if deadline is None else max(min(LOOK_S, deadline - time.monotonic()), 0.0))

    def rows(self) -> Sequence[FeedRows]:
        """Return the row accounting of each input of each task, all at one instant: `count.arrived` is
        `count.processed + count.dropped + count.waiting + count.unreported`."""
        return self.runtime.rows()

    @property
    def sampled_at(self) -> float | None:
        """Return when the broker was last asked for offsets, monotonic seconds; None: not yet."""
        return self.runtime.metrics.history.newest

    @property
    def collector(self) -> SessionCollector:
        """Return the metrics as `prometheus_client` collects them, for a registry of your own."""
        return self._outlets.collector

    def health(self) -> str:
        """Return why the session is not healthy: a query was given up, or the controller is silent; "" if it is.

        Without the causes, which may quote rows: `/healthz` tells it to all users of the machine.
        """
        self.monitor.tick()
        return "; ".join(f"{kind} {name}" for kind, name in self.monitor.alarms.open if kind in (GIVEN_UP, SILENT))

    def problem(self, tolerate_s: float = TOLERATE_S) -> QueryError | None:
        """Return what `run` would raise now, None if nothing."""
        now = time.monotonic()
        for (kind, subject), opened in self.monitor.alarms.open.items():
            lasts_s = now - opened.since
            if kind == GIVEN_UP or (kind in (STARVED, SILENT) and lasts_s > tolerate_s):
                cause = opened.alarm.detail.get("why") or opened.alarm.words
                lasting = "" if kind == GIVEN_UP else f" (for {lasts_s:.0f} s)"
                return QueryError(f"{opened.alarm.words}{lasting}", name=subject, value=cause, rule=kind)
        return None

    def _told(self) -> Told:
        from qod_magics import __version__

        broken = [(each.stream, each.rule.condition, each.rule.action, each.rows) for each in self.runtime.rule_counts]
        return Told(self.id, __version__, self.controller.policy.name, self.rows(), broken)


def _path(path: str | os.PathLike[str]) -> Path:
    return Path(path).expanduser().absolute()
