"""Metrics for OpenTelemetry: the same table as Prometheus reads, exported by OTLP over HTTP.

The SDK's own exporter sends them, as its environment variables say: `OTEL_EXPORTER_OTLP_ENDPOINT`,
`OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_RESOURCE_ATTRIBUTES` and others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from qod_magics.errors import SetupError
from qod_magics.monitoring.metrics import METRICS, Metric, Scraped, SessionCollector

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
        self._collector, self._scraped = collector, None
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

    _scraped: Scraped | None

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
