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

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from qod_magics.core.engines import US, Dispatcher, S
from qod_magics.data.forms import Count, Form, Name, NotNegative, Positive, Whole, read, read_json
from qod_magics.errors import ScenarioError
from qod_magics.simulator.messages.dataflow import Arrivals, Dataflow, Job, Source, Stage
from qod_magics.simulator.messages.engine import Engine, Links, Overheads, Store

ENGINE = "messages"  #: what such a file names as its engine


def _check_bandwidth(bytes_per_s: float | None) -> None:
    if bytes_per_s is not None and bytes_per_s <= 0:
        raise ValueError(f"bytes_per_s must be above 0, or null for no limit; it is {bytes_per_s:g}")


class Cluster(Form, frozen=True):
    """Machines and links. Raises ValueError without a machine, worker or bandwidth."""

    machines: Whole = 1
    workers: Whole = 1  #: of each machine
    delay_us: NotNegative = 0.0  #: one way, between two machines and from clients
    bytes_per_s: NotNegative | None = None  #: of each link; None: no limit

    def __post_init__(self) -> None:
        if self.machines < 1 or self.workers < 1:
            raise ValueError(f"machines and workers must be 1 or more, are {self.machines} and {self.workers}")
        _check_bandwidth(self.bytes_per_s)


class StoreSettings(Form, frozen=True):
    """Of the remote store and its caches. Raises ValueError without bandwidth."""

    read_us: NotNegative = 0.0
    bytes_per_s: NotNegative | None = None
    object_bytes: Whole = 0
    capacity: Whole | None = None  #: objects a worker; None: no limit

    def __post_init__(self) -> None:
        _check_bandwidth(self.bytes_per_s)


class OverheadSettings(Form, frozen=True):
    """CPU of a dispatcher."""

    run_us: NotNegative = 0.0
    send_us: NotNegative = 0.0
    switch_us: NotNegative = 0.0


class _SourceForm(Form, frozen=True):
    name: Name
    clients: Whole = 1
    arrivals: Arrivals = Arrivals()
    bytes_per_row: Whole = 0


class _JobForm(Form, frozen=True):
    name: Name
    stages: Annotated[tuple[Stage, ...], Meta(min_length=1)]
    sources: tuple[_SourceForm, ...] = ()
    copies: Count = 1
    max_latency_ms: NotNegative = 0.0


CLUSTER, OVERHEADS = Cluster(), OverheadSettings()


class _ScenarioForm(Form, frozen=True, kw_only=True):
    """The JSON form in this module's docstring."""

    engine: Literal["messages"] = "messages"
    jobs: Annotated[tuple[_JobForm, ...], Meta(min_length=1)]
    duration_s: Positive
    seed: Whole = 0
    drain_s: NotNegative = 0.0
    policy: Name = "cameo"
    cluster: Cluster = CLUSTER
    store: StoreSettings | None = None
    overheads: OverheadSettings = OVERHEADS
    given: Any = None
    chosen: Any = None


@dataclass(frozen=True, slots=True)
class MessageScenario:
    """Jobs, a cluster, and how long they run. `read` and `from_json` raise ScenarioError, one line."""

    jobs: tuple[Job, ...]
    duration_s: float
    seed: int = 0
    drain_s: float = 0.0
    policy: str = "cameo"
    cluster: Cluster = CLUSTER
    store: StoreSettings | None = None
    overheads: OverheadSettings = OVERHEADS

    @classmethod
    def read(cls, path: str | Path) -> MessageScenario:
        """Return the scenario of a JSON file."""
        return cls.from_json(read_json(path))

    @classmethod
    def from_json(cls, value: Any) -> MessageScenario:
        """Return the scenario of a JSON value."""
        form = read(_ScenarioForm, value, "scenario")
        jobs = [job for n, each in enumerate(form.jobs) for job in _jobs(each, f"jobs[{n}]")]
        names = [job.name for job in jobs]
        if len(set(names)) < len(names):
            raise ScenarioError(f"two jobs have one name: {', '.join(names)}: name them apart", rule="unique")
        return cls(
            tuple(jobs),
            form.duration_s,
            form.seed,
            form.drain_s,
            form.policy,
            form.cluster,
            form.store,
            form.overheads,
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


def _jobs(form: _JobForm, where: str) -> list[Job]:
    """Return a job, or its copies: "LS1", "LS2" ..."""
    sources = tuple(Source(each.name, each.clients, each.arrivals, each.bytes_per_row) for each in form.sources)
    try:
        made = Job(form.name, form.stages, sources, form.max_latency_ms)
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}", name=where, rule="own") from None
    copies = form.copies
    return [made] if copies == 1 else [replace(made, name=f"{form.name}{n}") for n in range(1, copies + 1)]
