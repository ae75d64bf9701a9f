"""What a collector of OpenTelemetry receives: the values of a scrape by Prometheus, of one instant."""

from __future__ import annotations

import gzip
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from qod_magics.core.runtime import Count, FeedRows
from qod_magics.errors import SetupError
from qod_magics.monitoring.door import Telemetry, name_of
from qod_magics.monitoring.metrics import METRICS, SessionCollector, Told
from qod_magics.monitoring.monitor import Monitor
from tests.controller.scripted import FixedPolicy, bench, chain, seen
from tests.monitoring.scraping import scrape
from tests.raising import breaks

service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter")


class Receiver:
    """A collector of OpenTelemetry on the loopback interface: what it has received by OTLP over HTTP."""

    def __init__(self) -> None:
        self.exports: list[Any] = []
        self.paths: list[str] = []
        exports, paths = self.exports, self.paths

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                exports.append(service.ExportMetricsServiceRequest.FromString(body))
                paths.append(self.path)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{made.server.server_port}")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "600000")
    yield made
    made.close()


def received(export: Any) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """The values by metric and attributes."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for metric in export.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points:
            labels = tuple(sorted((each.key, each.value.string_value) for each in point.attributes))
            value = point.as_int if point.HasField("as_int") else point.as_double
            found.setdefault(metric.name, {})[labels] = value
    return found


def watched() -> tuple[Monitor, SessionCollector]:
    """A session after two cycles."""
    b = bench(seen(chain()), policy=FixedPolicy(0.7))
    monitor = Monitor(clock=b.clock.monotonic)
    b.controller.subscribe(monitor.take)
    b.cycles(2)

    def told() -> Told:
        rows = FeedRows("Src", "Src", "trips", Count(10, 5, 2, 2, 1, 3, 1, 0, 6, 7), {0: 2, 1: 0}, 4, 1)
        return Told("abc", "0.1", "fixed", (rows,), (("trips", "fare > 0", "drop", 3),))

    return monitor, SessionCollector(monitor, told)


def test_a_collector_receives_the_values_of_a_scrape(receiver: Receiver) -> None:
    _, collector = watched()
    Telemetry(collector, "abc").close()
    (export,), (path,) = receiver.exports, receiver.paths
    assert path == "/v1/metrics"
    scraped = scrape(collector)
    assert received(export) == {name_of(metric): scraped[metric.name] for metric in METRICS if metric.name in scraped}
    kinds = {metric.name: metric.HasField("sum") for metric in export.resource_metrics[0].scope_metrics[0].metrics}
    assert kinds == {name_of(metric): metric.is_counter for metric in METRICS if metric.name in scraped}
    resource = {each.key: each.value.string_value for each in export.resource_metrics[0].resource.attributes}
    assert (resource["service.name"], resource["service.instance.id"]) == ("qod_magics", "abc")


def test_the_environment_names_the_service(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "trips")
    Telemetry(watched()[1], "abc").close()
    resource = receiver.exports[0].resource_metrics[0].resource.attributes
    assert "trips" in {each.value.string_value for each in resource if each.key == "service.name"}


def test_each_export_is_of_one_instant() -> None:
    """The counts change with each look: within an export they balance all the same."""
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    monitor, _ = watched()
    looks: list[int] = []

    def told() -> Told:
        looks.append(len(looks) + 1)
        n = looks[-1]
        return Told("abc", "0.1", "fixed", (FeedRows("Src", "Src", "trips", Count(10 * n, 7 * n, 3 * n)),))

    reader = InMemoryMetricReader()
    telemetry = Telemetry(SessionCollector(monitor, told), "abc", reader)
    for n in (1, 2):
        metrics = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        values = {each.name: each.data.data_points[0].value for each in metrics if each.name.startswith("qod_rows")}
        kinds = ("qod_rows_arrived", "qod_rows_processed", "qod_rows_dropped")
        assert [values[kind] for kind in kinds] == [10 * n, 7 * n, 3 * n]
        assert looks == list(range(1, n + 1))
    telemetry.close()


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    with pytest.raises(SetupError, check=breaks("installed")):
        Telemetry(watched()[1], "abc")
