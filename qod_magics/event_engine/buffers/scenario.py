"""The JSON of a simulated job whose channels have output buffers.

    {"engine": "output-buffers", "seed": 1, "duration_s": 600, "workers": 2, "interval_s": 15,
     "policy": "nephele", "parameters": {"r": 0.98},
     "vertices": [
       {"name": "P", "kind": "source", "parallelism": 8},
       {"name": "D", "kind": "map", "parallelism": 8, "work_us": 1500, "bytes": 115200},
       {"name": "M", "kind": "merge", "parallelism": 8, "work_us": 100, "inputs": 4, "bytes": 460800},
       {"name": "E", "kind": "map", "parallelism": 8, "work_us": 4000, "bytes_ratio": 0.75},
       {"name": "R", "kind": "sink", "parallelism": 8}],
     "edges": [["P", "D", "all-to-all"], ["D", "M", "pointwise"], ["M", "E", "pointwise"], ["E", "R", "all-to-all"]],
     "constraints": [
       {"sequence": ["e(P,D)", "D", "e(D,M)", "M", "e(M,E)", "E", "e(E,R)"], "limit_ms": 300, "span_s": 15}],
     "streams": {"count": 64, "group": 4, "items_per_s": 15, "kbit_per_s": 100, "spread": 0.5, "item_spread": 0.3,
                 "slow_share": 0.02, "slow_kbit_per_s": [1, 17], "start_s": 1},
     "network": {"bits_per_s": 1e9, "buffer_cost_us": 102.4, "transport_ms": 38, "handover_ms": 1, "item_overhead": 19,
                 "window_bytes": 1048576}}

Tasks are spread evenly over the workers, from a vertex' `first_worker` on (1). Streams are numbered; consecutive ones
form a group. Stream s enters at source s modulo the parallelism; a group goes to one task of each following vertex, and
over different channels to different sinks. An item has `kbit_per_s` / `items_per_s` bits, times a lognormal factor
(`spread`: of the streams, `item_spread`: of their items), or exactly `item_bytes`. A map emits `bytes`, or
`bytes_ratio` times the bytes of the source's items. `items`: a stream ends after so many. `given` and `chosen` explain
numbers and are not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args

from qod_magics.core.dispatch import MS, US, S
from qod_magics.core.job_graph import JobConstraint, JobEdge, JobGraph, JobSequence, RuntimeGraph
from qod_magics.core.wording import hint, show
from qod_magics.errors import ScenarioError
from qod_magics.event_engine.buffers.network import Network

Kind = Literal["source", "map", "merge", "sink"]
ENGINE = "output-buffers"  #: what such a file names as its engine
NOT_READ = ("given", "chosen", "name")


@dataclass(frozen=True, slots=True)
class Vertex:
    """What the tasks of a job vertex do."""

    name: str
    kind: Kind
    parallelism: int
    work_us: float = 0.0  #: CPU for each item that enters
    bytes: int = 0  #: of each item that leaves; 0: by the ratio
    bytes_ratio: float = 1.0  #: bytes of an item that leaves / mean bytes of the source's items in it
    inputs: int = 1  #: streams that a merger makes one of
    first_worker: int = 1  #: that of the first task

    @property
    def work(self) -> int:
        """CPU for each item that enters, ns."""
        return round(self.work_us * US)


@dataclass(frozen=True, slots=True)
class Streams:
    """What the sources emit."""

    count: int
    items_per_s: float
    group: int = 1
    kbit_per_s: float = 0.0
    item_bytes: int = 0
    spread: float = 0.0
    item_spread: float = 0.0
    slow_share: float = 0.0
    slow_kbit_per_s: tuple[float, float] = (1.0, 17.0)
    start_s: float = 0.0
    items: int | None = None  #: of each stream; None: no end


@dataclass(frozen=True, slots=True)
class BufferScenario:
    """A job, its input, its network, and who sizes the buffers."""

    graph: RuntimeGraph
    vertices: Mapping[str, Vertex]
    constraints: tuple[JobConstraint, ...]
    streams: Streams
    network: Network
    item_overhead: int = 0  #: bytes that serialization adds to an item
    seed: int = 1
    duration_s: float = 600.0
    interval_s: float = 15.0
    policy: str = "nephele"
    parameters: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, path: str | Path) -> BufferScenario:
        """From a file. Raises ScenarioError for what cannot be read, as `from_json` does."""
        try:
            value = json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ScenarioError(f"{path} cannot be read: {error}; give a file of JSON") from None
        return cls.from_json(value)

    @classmethod
    def from_json(cls, value: Any) -> BufferScenario:
        """From the JSON that the module describes. Raises ScenarioError, one line, that names the key."""
        known = {each.name for each in fields(cls)} - {"graph", "item_overhead"} | {"engine", "workers", "edges"}
        found = _object(value, "the scenario", known | set(NOT_READ))
        if found.get("engine") != ENGINE:
            raise ScenarioError(
                f"engine: {show(found.get('engine'))} is not {ENGINE!r}: give a job with output buffers"
            )
        vertices = {each.name: each for each in map(_vertex, _needed(found, "vertices", list))}
        job = JobGraph(tuple(vertices), tuple(_edge(each) for each in _needed(found, "edges", list)))
        workers = int(_number(found, "workers", 1))
        network = dict(_object(found.get("network", {}), "network", _NETWORK))
        constraints = tuple(_constraint(each) for each in found.get("constraints", []))
        for constraint in constraints:
            constraint.sequence.check(job)
        for name in job.vertices:
            if sum(edge.sender == name for edge in job.edges) > 1:
                raise ScenarioError(f"vertex {show(name)} has two edges out of it: an item leaves by one; remove one")
        streams = _made(Streams, _needed(found, "streams", dict), "streams")
        _check_streams(streams, vertices)
        parameters = found.get("parameters")
        if parameters is not None and not isinstance(parameters, dict):
            raise ScenarioError(f"parameters: {show(parameters)} is not an object; give those of the policy by name")
        return cls(
            RuntimeGraph(job, {each.name: _spread(each, workers) for each in vertices.values()}),
            vertices,
            constraints,
            streams,
            Network(
                _number(network, "bits_per_s", 1e9),
                round(_number(network, "buffer_cost_us", 0, least=0) * US),
                round(_number(network, "transport_ms", 0, least=0) * MS),
                round(_number(network, "handover_ms", 0, least=0) * MS),
                int(_number(network, "window_bytes", 1 << 20)),
            ),
            int(_number(network, "item_overhead", 0, least=0)),
            int(_number(found, "seed", 1, least=0)),
            _number(found, "duration_s", 600),
            _number(found, "interval_s", 15),
            str(found.get("policy", "nephele")),
            parameters,
        )

    @property
    def interval(self) -> int:
        """Length of a measurement interval, ns."""
        return round(self.interval_s * S)

    @property
    def end(self) -> int:
        """When the simulation ends, ns."""
        return round(self.duration_s * S)


_NETWORK = {"bits_per_s", "buffer_cost_us", "transport_ms", "handover_ms", "item_overhead", "window_bytes"}


def _spread(vertex: Vertex, workers: int) -> tuple[str, ...]:
    """The worker of each task."""
    count, first = vertex.parallelism, vertex.first_worker - 1
    return tuple(f"w{(first + i * min(workers, count) // count) % workers + 1}" for i in range(count))


def _object(value: Any, what: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ScenarioError(f"{what}: {show(value)} is not an object")
    for key in value:
        if key not in known:
            raise ScenarioError(f"{what} has the unknown key {show(key)}.{hint(key, known)}")
    return value


def _needed(found: Mapping[str, Any], key: str, kind: type) -> Any:
    value = found.get(key)
    if not isinstance(value, kind) or not value:
        raise ScenarioError(
            f"{key}: {show(value)} is not a {'list' if kind is list else 'n object'} with entries; add it"
        )
    return value


def _number(found: Mapping[str, Any], key: str, default: float, least: float | None = None) -> float:
    value = found.get(key, default)
    fits = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if not fits or (value <= 0 if least is None else value < least):
        raise ScenarioError(f"{key}: {show(value)} is not a number {'> 0' if least is None else f'>= {least:g}'}")
    return float(value)


def _made(kind: type, value: Any, what: str) -> Any:
    """A dataclass from an object of the same keys."""
    found = dict(_object(value, what, {each.name for each in fields(kind)} | set(NOT_READ) & {"given", "chosen"}))
    for key in ("given", "chosen"):
        found.pop(key, None)
    for each in fields(kind):
        if each.type in ("int", "float") and each.name in found:
            found[each.name] = (int if each.type == "int" else float)(_number(found, each.name, 0, least=0))
    if "slow_kbit_per_s" in found:
        limits = found["slow_kbit_per_s"]
        if not isinstance(limits, list) or len(limits) != 2:
            raise ScenarioError(f"slow_kbit_per_s: {show(limits)} is not a range; give two numbers, such as [1, 17]")
        found["slow_kbit_per_s"] = tuple(_number({"slow_kbit_per_s": each}, "slow_kbit_per_s", 0) for each in limits)
    try:
        return kind(**found)
    except TypeError as error:
        raise ScenarioError(f"{what}: {str(error).partition(') ')[2] or error}: add what is missing") from None


def _vertex(value: Any) -> Vertex:
    found: Vertex = _made(Vertex, value, "a vertex")
    if found.kind not in get_args(Kind):
        raise ScenarioError(
            f"vertex {show(found.name)}: kind {show(found.kind)} is unknown; give one of {', '.join(get_args(Kind))}"
        )
    if found.parallelism < 1 or found.inputs < 1:
        raise ScenarioError(f"vertex {show(found.name)}: parallelism and inputs are 1 or more")
    return found


def _edge(value: Any) -> JobEdge:
    if not isinstance(value, list) or len(value) != 3:
        raise ScenarioError(f'edges: {show(value)} is not an edge; give ["P", "D", "all-to-all"]')
    return JobEdge(*value)


def _constraint(value: Any) -> JobConstraint:
    found = _object(value, "a constraint", {"sequence", "limit_ms", "span_s"})
    sequence: Sequence[str] = _needed(found, "sequence", list)
    return JobConstraint(JobSequence.parse(sequence), _number(found, "limit_ms", 0), _number(found, "span_s", 15))


def _check_streams(streams: Streams, vertices: Mapping[str, Vertex]) -> None:
    if streams.count < 1 or streams.items_per_s <= 0 or streams.group < 1:
        raise ScenarioError("streams: count, items_per_s and group are above 0")
    if not streams.item_bytes and not streams.kbit_per_s:
        raise ScenarioError("streams: the size of items is unknown; give kbit_per_s or item_bytes")
    for vertex in vertices.values():
        if vertex.kind == "merge" and vertex.inputs != streams.group:
            raise ScenarioError(
                f"vertex {show(vertex.name)} merges {vertex.inputs} streams, and a group has {streams.group}: "
                "give both the same number"
            )
