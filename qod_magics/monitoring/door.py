"""Where metrics go: an HTTP server on the loopback interface, and a file for node-exporter's textfile collector."""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from platformdirs import user_config_path
from prometheus_client.exposition import choose_encoder, write_to_textfile
from prometheus_client.registry import Collector

from qod_magics.controller.journal import describe
from qod_magics.errors import SetupError, UsageProblem
from qod_magics.monitoring.metrics import METRICS, Metric, Scraped, SessionCollector

LOG = logging.getLogger(__name__)
LOOPBACK = "127.0.0.1"
#: Seconds after which a client that sends nothing is let go.
CLIENT_S = 10.0
#: Characters that a token has at least.
SHORTEST = 16
#: Returns why a session is not healthy; "" if it is.
Health = Callable[[], str]


def default_token() -> Path:
    """Return the file of the token, unless another is named: the user's, kept from session to session, so that a
    scraper's configuration can name it."""
    return user_config_path("qod_magics", appauthor=False) / "metrics-token"


def token_in(path: Path) -> str:
    """Return the token in a file, which is made if there is none, readable by its owner only. Raises UsageProblem: it
    can't be read or made, others may read it, or its token is short."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        token, mode = path.read_text("utf-8").strip(), path.stat().st_mode
    except OSError as error:
        raise UsageProblem(
            f"the token's file must be readable, got {str(path)!r} ({error.strerror}); name another with --token-file",
            value=str(path),
            rule="readable",
        ) from error
    if mode & 0o077:
        raise UsageProblem(
            f"the token's file must be its owner's only, got mode {mode & 0o777:o} of {str(path)!r}; chmod 600 does it",
            value=str(path),
            rule="private",
        )
    if len(token) < SHORTEST:
        raise UsageProblem(
            f"the token must have {SHORTEST} characters or more, got {len(token)} in {str(path)!r}; remove the file to "
            "have one made",
            value=len(token),
            rule="long",
        )
    return token


class Door:
    """Serves `/metrics` to whoever has the token, and `/healthz` to all on this machine. It ends with `close`.

    Raises UsageProblem: the port is taken or out of range.

    Args:
        port: of the loopback interface; 0: a free one.
        metrics: what `/metrics` is read from, as `prometheus_client` collects it.
        health: for `/healthz`: "" makes 200 and "ok", else 503 and the words.
        token: that `/metrics` asks for, as `Authorization: Bearer TOKEN`.

    Attributes:
        port: the one it listens on.

    """

    def __init__(self, port: int, metrics: Collector, health: Health, token: str) -> None:
        if not 0 <= port < 1 << 16:
            raise UsageProblem(
                f"a port must be from 0 to 65535, got {port}; 0 takes a free one", value=port, rule="port"
            )
        try:
            self._server = ThreadingHTTPServer((LOOPBACK, port), _handler(metrics, health, token))
        except OSError as error:
            raise UsageProblem(
                f"port {port} must be free on {LOOPBACK}, got {error.strerror}; name another, or 0 for a free one",
                value=port,
                rule="free port",
            ) from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="qod-metrics", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"metrics at {self.url}"

    @property
    def url(self) -> str:
        """Return where `/metrics` is."""
        return f"http://{LOOPBACK}:{self.port}/metrics"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(metrics: Collector, health: Health, token: str) -> type[BaseHTTPRequestHandler]:
    expected = f"Bearer {token}".encode()

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_S
        server_version, sys_version = "qod_magics", ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/healthz":
                why = health()
                self._answer(503 if why else 200, f"{why or 'ok'}\n".encode())
            elif path != "/metrics":
                self._answer(404, b"there are /metrics and /healthz\n")
            elif not hmac.compare_digest(self.headers.get("Authorization", "").encode(), expected):
                self._answer(401, b"Authorization: Bearer TOKEN is asked for\n", ("WWW-Authenticate", "Bearer"))
            else:
                encode, kind = choose_encoder(self.headers.get("Accept", ""))
                try:
                    body = encode(metrics)
                except Exception as error:
                    LOG.warning("metrics can't be read: %s", describe(error))
                    self._answer(500, f"metrics can't be read: {describe(error)}\n".encode())
                else:
                    self._answer(200, body, ("Content-Type", kind))

        def _answer(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
            self.send_response(status)
            named = dict(headers)
            for name, value in {"Content-Type": "text/plain; charset=utf-8", **named}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            LOG.debug(format, *args)

    return Handler


def check_textfile(path: Path) -> None:
    """Refuse what can't be a file for node-exporter, or is in no directory that can be written. Raises UsageProblem."""
    if path.suffix != ".prom":
        raise UsageProblem(
            f"the file of metrics must end with .prom, got {path.name!r}; node-exporter reads no other",
            value=path.name,
            rule=".prom",
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageProblem(
            f"the file of metrics must be writable, got {str(path)!r} (no such directory, or no right to write there); "
            "name another",
            value=str(path),
            rule="writable",
        )


class Textfile:
    """Writes metrics to a file after each cycle, on a thread of its own; `close` removes the file.

    A session that ends has no metrics; one that is killed leaves the file, in which the time of its last decision gets
    old. Raises UsageProblem: the file can't be written.
    """

    def __init__(self, path: Path, metrics: Collector) -> None:
        check_textfile(path)
        self.path = path
        self._metrics = metrics
        self._due, self._ended = threading.Event(), False
        try:
            self._write()
        except OSError as error:
            raise UsageProblem(
                f"the file of metrics must be writable, got {str(path)!r} ({error.strerror}); name another",
                value=str(path),
                rule="writable",
            ) from error
        self._thread = threading.Thread(target=self._run, name="qod-textfile", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"metrics in {self.path}"

    def due(self, *_: object) -> None:
        """Have it written soon."""
        self._due.set()

    def close(self) -> None:
        """Write no more, and remove the file."""
        self._ended = True
        self._due.set()
        self._thread.join(CLIENT_S)
        self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        write_to_textfile(str(self.path), self._metrics)

    def _run(self) -> None:
        while self._due.wait() and not self._ended:
            self._due.clear()
            try:
                self._write()
            except Exception as error:
                LOG.warning("metrics can't be written to %s: %s", self.path, describe(error))


# --- OpenTelemetry ----------------------------------------------------------------------------------------------------
# The SDK's own exporter sends them, as its environment variables say: `OTEL_EXPORTER_OTLP_ENDPOINT`,
# `OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_RESOURCE_ATTRIBUTES` and others.

#: The name of the service, unless the environment names another.
SERVICE = "qod_magics"
#: How long the last export may take, seconds.
LAST_S = 3.0


class Telemetry:
    """Exports the metrics of a session from now on until `close`.

    Each export is of one instant: the callback that is asked first reads the session, and the others use what it read.

    Args:
        collector: what is exported.
        session: its id, an attribute of the resource.
        reader: an `opentelemetry.sdk.metrics.export.MetricReader`; None: exports each minute, or as the environment
            says.

    Raises SetupError: the SDK is not installed.

    """

    def __init__(self, collector: SessionCollector, session: str, reader: Any = None) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import Resource
        except ImportError as error:
            raise SetupError(
                f"metrics by OTLP must have OpenTelemetry's SDK, got an installation without {error.name}; "
                "pip install 'qod-magics[otel]'",
                name=error.name,
                rule="installed",
            ) from error
        self._collector = collector
        self._scraped: Scraped | None = None
        self._asked: set[str] = set()
        self._lock = threading.Lock()
        resource = Resource.create()
        own = {"service.instance.id": session}
        if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
            own["service.name"] = SERVICE
        reader = reader if reader is not None else PeriodicExportingMetricReader(OTLPMetricExporter())
        self._provider = MeterProvider((reader,), resource.merge(Resource(own)), shutdown_on_exit=False)
        meter = self._provider.get_meter(SERVICE)
        for metric in METRICS:
            kind = meter.create_observable_counter if metric.is_counter else meter.create_observable_gauge
            kind(name_of(metric), [self._callback(metric)], description=metric.help)

    def __repr__(self) -> str:
        return f"export of {len(METRICS)} metrics by OTLP"

    def _callback(self, metric: Metric) -> Callable[[Any], Iterator[Any]]:
        from opentelemetry.metrics import Observation

        def observed(_: Any) -> Iterator[Any]:
            for labels, number in metric.read(self._of_one_instant(metric)):
                yield Observation(number, dict(zip(metric.labels, labels, strict=True)))

        return observed

    def _of_one_instant(self, metric: Metric) -> Scraped:
        """Return what this export is made of. One that asks for a metric again is the next."""
        with self._lock:
            if self._scraped is None or metric.name in self._asked:
                self._scraped = self._collector.scraped()
                self._asked = set()
            self._asked.add(metric.name)
            return self._scraped

    def close(self) -> None:
        """Export once more, and end."""
        self._provider.shutdown(timeout_millis=LAST_S * 1000)


def name_of(metric: Metric) -> str:
    """Return the name in OpenTelemetry, where a sum has no suffix: exporters to Prometheus add it."""
    return metric.name.removesuffix("_total") if metric.is_counter else metric.name
