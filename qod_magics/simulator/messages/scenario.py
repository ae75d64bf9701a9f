"""The input of a run of messages, from a JSON file.

The file names its engine; times carry their unit, rates are messages/s of each client:

    {"engine": "messages", "seed": 1, "duration_s": 60, "drain_s": 0, "policy": "cameo",
     "cluster": {"machines": 1, "workers": 4, "delay_us": 100, "bytes_per_s": null},
     "store": {"read_us": 500, "bytes_per_s": 1.25e9, "object_bytes": 512, "capacity": 100},
     "overheads": {"run_us": 1, "send_us": 2, "switch_us": 0},
     "jobs": [{"name": "LS", "copies": 4, "max_latency_ms": 800,
               "sources": [{"name": "clicks", "clients": 64, "bytes_per_row": 100,
                            "arrivals": {"per_s": 1, "rows": 1000, "delay_s": 0.1, "pareto": null}}],
               "stages": [{"name": "count", "inputs": ["clicks"], "width": 4, "fixed_us": 100, "row_us": 0.5,
                           "selectivity": 0.1, "slide_ms": 1000, "exchange": "one"},
                          {"name": "total", "inputs": ["count"], "fixed_us": 50, "slide_ms": 1000}]}],
     "given": {}, "chosen": {}}

A window's `length_ms` defaults to its slide; `exchange` is "all" (by key over all operators, the default), "one",
"turns" or "key". `drain_s`: how long it runs on without clients. `given` and `chosen` are notes: which numbers a source
states, and by what the others were chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

from qod_magics.core.engines import US, Dispatcher, S
from qod_magics.data.fields import Fields, read_json, read_object
from qod_magics.errors import ScenarioError
from qod_magics.simulator.messages.dataflow import Arrivals, Dataflow, Exchange, Job, Source, Stage
from qod_magics.simulator.messages.engine import Engine, Links, Overheads, Store

ENGINE = "messages"  #: what such a file names as its engine

_TOP = ("engine", "seed", "duration_s", "drain_s", "policy", "cluster", "store", "overheads", "jobs", "given", "chosen")


def _check_bandwidth(bytes_per_s: float | None) -> None:
    if bytes_per_s is not None and bytes_per_s <= 0:
        raise ValueError(f"bytes_per_s must be above 0, or null for no limit; it is {bytes_per_s:g}")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Machines and links. Raises ValueError without a machine, worker or bandwidth."""

    machines: int = 1
    workers: int = 1  #: of each machine
    delay_us: float = 0.0  #: one way, between two machines and from clients
    bytes_per_s: float | None = None  #: of each link; None: no limit

    def __post_init__(self) -> None:
        if self.machines < 1 or self.workers < 1:
            raise ValueError(f"machines and workers must be 1 or more, are {self.machines} and {self.workers}")
        _check_bandwidth(self.bytes_per_s)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Of the remote store and its caches. Raises ValueError without bandwidth."""

    read_us: float = 0.0
    bytes_per_s: float | None = None
    object_bytes: int = 0
    capacity: int | None = None  #: objects a worker; None: no limit

    def __post_init__(self) -> None:
        _check_bandwidth(self.bytes_per_s)


@dataclass(frozen=True, slots=True)
class OverheadSettings:
    """CPU of a dispatcher."""

    run_us: float = 0.0
    send_us: float = 0.0
    switch_us: float = 0.0


@dataclass(frozen=True, slots=True)
class MessageScenario:
    """Jobs, a cluster, and how long they run. `read` and `from_json` raise ScenarioError, one line."""

    jobs: tuple[Job, ...]
    duration_s: float
    seed: int = 0
    drain_s: float = 0.0
    policy: str = "cameo"
    cluster: Cluster = Cluster()
    store: StoreSettings | None = None
    overheads: OverheadSettings = OverheadSettings()

    @classmethod
    def read(cls, path: str | Path) -> MessageScenario:
        """Return the scenario of a JSON file."""
        return cls.from_json(read_json(path))

    @classmethod
    def from_json(cls, value: Any) -> MessageScenario:
        """Return the scenario of a JSON value."""
        top = Fields(value, "the scenario", _TOP)
        if "engine" in top and top.text("engine") != ENGINE:
            top.refuse("engine", f"be {ENGINE!r}")
        jobs: list[Job] = []
        for n, each in enumerate(top.items("jobs", "jobs")):
            jobs += _jobs(each, f"jobs[{n}]")
        if not jobs:
            top.refuse("jobs", "be a list of jobs, at least one")
        names = [job.name for job in jobs]
        if len(set(names)) < len(names):
            raise ScenarioError(f"two jobs have one name: {', '.join(names)}: name them apart")
        return cls(
            tuple(jobs),
            top.number("duration_s", above=0),
            top.whole("seed", at_least=0, default=0),
            top.number("drain_s", default=0.0),
            top.text("policy", default="cameo"),
            read_object(Cluster, value.get("cluster", {}), "cluster"),
            None if value.get("store") is None else read_object(StoreSettings, value["store"], "store"),
            read_object(OverheadSettings, value.get("overheads", {}), "overheads"),
        )

    def engine(self, dispatcher: Dispatcher) -> Engine:
        """Return a new engine for this scenario."""
        cluster, store, overheads = self.cluster, self.store, self.overheads
        dataflow = Dataflow(self.jobs, machines=cluster.machines, workers=cluster.workers, delay_us=cluster.delay_us)
        return Engine(
            dataflow,
            dispatcher,
            seed=self.seed,
            links=Links(dataflow.topology, cluster.bytes_per_s),
            store=None
            if store is None
            else Store(
                round(store.read_us * US),
                bytes_per_s=store.bytes_per_s,
                object_bytes=store.object_bytes,
                capacity=store.capacity,
                workers=len(dataflow.topology.workers),
            ),
            overheads=Overheads(
                round(overheads.run_us * US), round(overheads.send_us * US), round(overheads.switch_us * US)
            ),
        )

    def run(self, dispatcher: Dispatcher) -> Engine:
        """Run it to its end; the engine holds the results.

        Raises AssertionError if messages were lost or run twice, or the dispatcher's state is inconsistent.
        """
        engine = self.engine(dispatcher)
        until = round(self.duration_s * S)
        engine.run(until, end=until + round(self.drain_s * S) if self.drain_s else None)
        engine.check()
        return engine


def _jobs(value: Any, where: str) -> list[Job]:
    """Return a job, or its copies: "LS1", "LS2" ..."""
    top = Fields(value, where, ("name", "copies", "max_latency_ms", "sources", "stages"))
    name, copies = top.text("name"), top.whole("copies", at_least=1, default=1)
    sources = []
    for n, each in enumerate(top.items("sources", "sources")):
        here = f"{where}.sources[{n}]"
        sending = each.get("arrivals", {}) if isinstance(each, Mapping) else {}
        sources.append(read_object(Source, each, here, arrivals=read_object(Arrivals, sending, f"{here}.arrivals")))
    stages = []
    for n, each in enumerate(top.items("stages", "stages")):
        here = f"{where}.stages[{n}]"
        inputs = Fields(each, here, [field.name for field in fields(Stage)]).names("inputs")
        if inputs is None:
            raise ScenarioError(f"{here} lacks the field 'inputs': name sources or earlier stages")
        stage = read_object(Stage, each, here, inputs=inputs)
        if stage.exchange not in get_args(Exchange):
            known = ", ".join(get_args(Exchange))
            raise ScenarioError(f"{here}.exchange is {stage.exchange!r}: it must be one of {known}")
        stages.append(stage)
    max_latency_ms = top.number("max_latency_ms", default=0.0)
    try:
        made = Job(name, tuple(stages), tuple(sources), max_latency_ms)
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from None
    if not stages:
        top.refuse("stages", "be a list of stages, at least one")
    return [made] if copies == 1 else [replace(made, name=f"{name}{n}") for n in range(1, copies + 1)]
