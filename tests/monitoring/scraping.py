"""A scrape as samples: the text form of Prometheus, read by its own parser."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

#: A sample's labels, sorted by name.
Labels = tuple[tuple[str, str], ...]
Samples = Mapping[str, Mapping[Labels, float]]


def samples(text: str) -> Samples:
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            of = found.setdefault(each.name, {})
            key = tuple(sorted(each.labels.items()))
            assert key not in of, f"{each.name} {key} twice"
            of[key] = each.value
    return found


def scrape(collector: Collector) -> Samples:
    return samples(generate_latest(collector).decode())


def one(found: Samples, name: str, **labels: str) -> float:
    return found[name][tuple(sorted(labels.items()))]


def assert_balanced(found: Samples) -> float:
    """The counters of each stream add up, and its partitions' lag is what waits. Returns the rows that arrived."""
    assert found["qod_rows_arrived"]
    for stream, arrived in found["qod_rows_arrived"].items():
        kinds = ("qod_rows_processed_total", "qod_rows_dropped_total", "qod_rows_waiting", "qod_rows_unreported")
        assert arrived == sum(found[kind][stream] for kind in kinds), stream
        assert found["qod_rows_deleted_total"][stream] <= found["qod_rows_unreported"][stream]
        lags = found.get("qod_consumer_lag_rows", {})
        partitions = [rows for labels, rows in lags.items() if set(stream) <= set(labels)]
        assert not partitions or sum(partitions) == found["qod_rows_waiting"][stream], stream
    return sum(found["qod_rows_arrived"].values())
