"""Costs: throughput of one core beside plain Spark, delays of decisions, and the time that observing takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame

from benchmarks.evaluation import delays
from benchmarks.evaluation.applications import TOPICS
from benchmarks.evaluation.capacity import PARTITIONS, capacity, cpu_s, pid
from benchmarks.evaluation.cluster import Run, running
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.topics import create_topics

INSTANCES = (5, 20, 40)  #: at which observing is timed; 50 take a machine of two cores too long to start
EACH = 5  #: instances of one stream
LOOKS = 7
IDLE_S = 10.0  #: two real-time batches
MIB = 2**20


def costs(out: Path, scale: float) -> dict[str, Any]:
    """All parts in one session, one after the other."""
    with running(out / "costs.jsonl", dict.fromkeys(TOPICS, PARTITIONS)) as run:
        timed = _Timed()
        found: dict[str, Any] = {"capacity": timed("capacity", lambda: capacity(run, scale))}
        delays.start_counting(run)
        found["dial"] = timed("dial", lambda: delays.dial_turns(run, 6 if scale >= 1 else 3))
        run.session.pause()
        found["start_s"] = timed("start", lambda: _starts(run, 2 if scale >= 1 else 1))
        found["move"] = timed("move", lambda: delays.moves(run, 2 if scale >= 1 else 1))
        found["memory_mib"] = memory(run)
        run.session.stop_all()
        found["observe"] = timed("observe", lambda: _observing(run, INSTANCES if scale >= 1 else INSTANCES[:2]))
        return {**found, "seconds": timed.seconds}


class _Timed:
    """Runs calls and keeps their durations."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        begun = time.monotonic()
        found = call()
        self.seconds[name] = time.monotonic() - begun
        print(f"{name}: {self.seconds[name]:.1f} s", flush=True)
        return found


def _starts(run: Run, times: int) -> list[float]:
    """Seconds from the order for a task manager until it is up and warm; the last one stays."""
    found = []
    for number in range(times):
        begun = time.monotonic()
        id = run.session.add_task_manager(cpus=[run.last_core])
        found.append(time.monotonic() - begun)
        if number + 1 < times:
            run.session.remove_task_manager(id)
    return found


def memory(run: Run) -> dict[str, float]:
    """Resident memory by process, MiB. This process stands for the kernel: it holds what a notebook's would, and
    the evaluation."""
    session = run.session
    injectors = [injector.pid for injector in session.injectors if injector.pid is not None]
    broker = session.kafka.pid if isinstance(session.kafka, EmbeddedBroker) else None
    known = {"kernel": psutil.Process().pid, "broker": broker, "injector": injectors[-1] if injectors else None}
    known |= {id: pid(manager) for id, manager in session.runtime.task_managers.items()}
    there = {name: psutil.Process(each) for name, each in known.items() if each is not None}
    others = [p for p in psutil.Process().children(recursive=True) if p.pid not in known.values()]
    found = {name: process.memory_info().rss / MIB for name, process in there.items()}
    return {**found, "watchdogs": sum(_resident(process) for process in others) / MIB}


def _resident(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0.0


def _observing(run: Run, counts: Sequence[int]) -> dict[str, Any]:
    """By number of instances: durations of observations, and the CPU of instances without input."""
    session = run.session
    session.thread.stop()  # no other observations
    found: dict[str, Any] = {}
    for count in counts:
        begun = time.monotonic()
        for number in range(len(session.application.names), count // EACH):
            _declare_trivial(run, number)
        started_s = time.monotonic() - begun
        session.runtime.observe()
        processes = [psutil.Process(pid(manager)) for manager in session.runtime.task_managers.values()]
        cpu, since = sum(map(cpu_s, processes)), time.monotonic()
        run.wait(IDLE_S)
        idle = 100 * (sum(map(cpu_s, processes)) - cpu) / (time.monotonic() - since)
        took = []
        for _ in range(LOOKS):
            begun = time.monotonic()
            session.runtime.observe()
            took.append(1000 * (time.monotonic() - begun))
        assert len(session.runtime.instances) == count
        found[str(count)] = {"observe_ms": took, "idle_cpu": idle, "declared_s": started_s}
    return found


def _declare_trivial(run: Run, number: int) -> None:
    """A stream on `EACH` instances, without work."""
    create_topics(run.session.kafka, {f"trivial{number}": EACH})

    def nothing(source: DataFrame) -> DataFrame:
        return source.where("id < 0")

    run.session.stream(
        f"trivial{number}",
        nothing,
        topic=f"trivial{number}",
        schema="id LONG",
        parallelism=EACH,
        priority=1,
        min_accuracy=0.0,
    )
