"""Runs without a notebook, as processes of their own: a plain script, and cells that are scraped under load."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest

from qod_magics.monitoring.metrics import METRICS
from tests.live.conftest import eventually
from tests.live.kernel import Household, Traces, surroundings
from tests.monitoring.scraping import Samples, assert_balanced, samples

ROOT = Path(__file__).parents[2]
LONGEST_S = 240.0
NOTHING = Traces(frozenset(), frozenset(), frozenset())


@contextmanager
def process(*words: str, home: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process in an empty directory, with the lines that it prints; nothing of it may be left."""
    household = Household()
    environment = {**surroundings(), **household.environment, "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen(
        [sys.executable, *words],
        **{"cwd": home, "env": environment, "text": True},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines: list[str] = []
    assert running.stdout is not None
    thread = threading.Thread(target=lambda: lines.extend(iter(running.stdout.readline, "")), daemon=True)  # type: ignore[union-attr]
    thread.start()
    try:
        yield running, lines
        assert running.wait(LONGEST_S) is not None
        thread.join(10.0)
        eventually(lambda: not household.look().left(NOTHING), what=lambda: str(household.look().left(NOTHING)))
    finally:
        running.kill()
        running.wait()
        thread.join(10.0)
        running.stdout.close()
        household.close()


def test_the_example_of_the_readme_runs_as_a_plain_script(tmp_path: Path) -> None:
    with process(str(ROOT / "docs" / "examples" / "trips.py"), "15", home=tmp_path) as (running, lines):
        assert running.wait(LONGEST_S) == 0, "".join(lines)[-2000:]
    said = "".join(lines)
    totals: dict[str, float] = {}
    for zone, trips in re.findall(r"\|(\d)\s*\|([\d.]+)\s*\|", said):  # as the batches went on
        totals[zone] = max(totals.get(zone, 0.0), float(trips))
    assert totals.keys() == {"0", "1", "2", "3"}, said
    assert sum(totals.values()) == pytest.approx(1000.0, rel=0.25)


@pytest.mark.smoke
def test_cells_run_until_sigterm_and_counters_balance_at_each_scrape(tmp_path: Path) -> None:
    token = tmp_path / "token"
    book = nbformat.read(ROOT / "docs" / "examples" / "trips.ipynb", 4)
    book.cells.append(nbformat.v4.new_code_cell("qod.override(qod.shedders[0], 0.5)"))
    application = str(tmp_path / "app.ipynb")
    nbformat.write(book, application)
    options = ("--health", "0", "--token-file", str(token), "--metrics-file", str(tmp_path / "qod.prom"))
    with process("-m", "qod_magics", "run", application, *options, home=tmp_path) as (running, lines):
        serving = json.loads(eventually(lambda: [line for line in lines if '"serving"' in line])[0])
        secret = token.read_text().strip()

        def scrape() -> Samples:
            request = urllib.request.Request(serving["metrics"], headers={"Authorization": f"Bearer {secret}"})
            try:
                with urllib.request.urlopen(request, timeout=10.0) as answer:
                    return samples(answer.read().decode())
            except OSError as error:
                pytest.fail(f"{error}: {''.join(lines)[-2000:]}")

        def processed() -> bool:
            found = scrape()
            feeds = found.get("qod_rows_processed_total", {})
            dropped = sum(found.get("qod_rows_dropped_total", {}).values())
            return sum(feeds.values()) > 0 and dropped > 0 and "qod_accuracy_measured_ratio" in found

        eventually(processed, LONGEST_S)
        arrived = []
        for _ in range(40):  # while rows arrive, and batches end
            arrived.append(assert_balanced(scrape()))
            time.sleep(0.1)
        assert arrived[-1] > arrived[0]
        found = scrape()
        named = {metric.name for metric in METRICS}
        assert set(found) <= named
        assert {"qod_task_manager_cpu_cores", "qod_consumer_lag_rows", "qod_instances", "qod_cycles_total"} <= set(
            found
        )
        lags = [dict(labels) for labels in found["qod_consumer_lag_rows"]]
        assert sorted(each["partition"] for each in lags if each["topic"] == "trips") == ["0", "1"]
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(serving["metrics"], timeout=10.0)
        with urllib.request.urlopen(serving["health"], timeout=10.0) as answer:
            assert answer.read() == b"ok\n"
        assert "qod_rows_arrived" in samples((tmp_path / "qod.prom").read_text())
        begun = time.monotonic()
        running.send_signal(signal.SIGTERM)
        assert running.wait(LONGEST_S) == 0
        assert time.monotonic() - begun < 60.0
    said = [json.loads(line) for line in lines if line.startswith("{")]  # C libraries write to standard error
    assert said[-1]["kind"] == "ended"
    assert (said[-1]["code"], said[-1]["left"]) == (0, [])
    assert sorted(os.listdir(tmp_path)) == ["app.ipynb", "token"]
