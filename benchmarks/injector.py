"""How many rows/s the injector sends to a real broker, and what that costs.

    python benchmarks/injector.py [--rates 10000 50000 100000] [--seconds 10] [--partitions 2]

For each rate the injector, pinned to one core, sends trips to a fresh topic of an embedded broker on the other cores
(on the same one, where there is only one). A rate is held when every row was acknowledged, none was a second late and
each second's rate was within 2 % of it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qod_magics.data.load import load
from qod_magics.data.rows import mean_bytes
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.injector import Injector
from qod_magics.kafka.offsets import end_offsets
from qod_magics.kafka.scenario import Scenario


def cores() -> tuple[set[int], set[int]]:
    """One core for the injector and the others for the broker."""
    have = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return {have[0]}, set(have[1:]) or {have[0]}


def measure(broker: EmbeddedBroker, rate: int, seconds: int, partitions: int) -> dict[str, Any]:
    feed = {"topic": f"at-{rate}", "partitions": partitions, "data": {"generator": "taxi-trips"}, "rate": rate}
    scenario = Scenario.from_json({"seed": 1, "duration_s": seconds, "topics": [feed]})
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.jsonl"
        injector = Injector(scenario, broker.bootstrap, broker.client_config(), record=record, cpus=cores()[0])
        injector.start()
        try:
            assert injector.pid is not None
            process = psutil.Process(injector.pid)
            while injector.position() < 1:
                injector.wait(0.05)
            began, before = injector.position(), process.cpu_times()
            while injector.position() < seconds - 1:
                injector.wait(0.05)
            passed, after = injector.position() - began, process.cpu_times()
            final = injector.wait(120)
        finally:
            injector.stop()
        lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert final is not None
    by_second = [line for line in lines if line["kind"] == "counts" and "rate" in line and line["position_s"] < seconds]
    done = final[f"at-{rate}"]
    there = sum(end_offsets(broker, [f"at-{rate}"], timeout_s=10)[f"at-{rate}"].values())
    return {
        "asked_rows_per_s": rate,
        "rate_mean": round(mean(line["rate"] for line in by_second)),
        "rate_min": round(min(line["rate"] for line in by_second)),
        "rate_max": round(max(line["rate"] for line in by_second)),
        "row_bytes": round(mean_bytes(load(scenario.topics[0].data, None, 1))),
        "injector_cpu_percent_of_a_core": round(
            100 * (after.user + after.system - before.user - before.system) / passed, 1
        ),
        "most_late_rows": max(line["late"] for line in by_second),
        "sent": done["sent"],
        "acknowledged": done["acknowledged"],
        "in_the_topic": there,
        "held": done["acknowledged"] == there == rate * seconds
        and max(line["late"] for line in by_second) < rate
        and all(abs(line["rate"] / rate - 1) < 0.02 for line in by_second),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="How many rows/s the injector sends, and what that costs.")
    parser.add_argument("--rates", type=int, nargs="+", default=[10_000, 50_000, 100_000], help="rows/s")
    parser.add_argument("--seconds", type=int, default=10, help="length of each run, at least 4")
    parser.add_argument("--partitions", type=int, default=2)
    arguments = parser.parse_args()
    held = []
    with EmbeddedBroker(cpus=cores()[1]) as broker:
        for rate in arguments.rates:
            result = measure(broker, rate, max(4, arguments.seconds), arguments.partitions)
            held.append(result["held"])
            print(json.dumps(result), flush=True)
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
