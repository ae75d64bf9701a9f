"""Scale-outs by several policies, on the same cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scaling.cluster import Cluster, Cost
from benchmarks.scaling.layouts import Layout
from qod_magics.core.plan import Plan
from qod_magics.core.policy import Policy
from qod_magics.policies import policy
from qod_magics.policies.stela import Options, Stela
from qod_magics.policies.stela.evaluation import WINDOW_S, convergence_s, down_s, settled_mean
from qod_magics.policies.stela.strategies import re_deal

CALIBRATION = Path(__file__).with_name("calibration.json")
CAPACITY = "stela, capacity"
NAMES = ("stela", "storm-re-deal", "least-link-load")
NEW = "new"
SETTLE_S = 60.0


def policy_of(name: str) -> Policy:
    """By name; CAPACITY is Stela with the other projection of R10."""
    return Stela(CAPACITY, Options(projection="capacity")) if name == CAPACITY else policy(name)


def calibrated() -> Mapping[str, Mapping[str, Cost]]:
    """Costs by layout and operator, as `calibrate` found them."""
    found = json.loads(CALIBRATION.read_text(encoding="utf-8"))["costs"]
    return {name: {op: Cost(**cost) for op, cost in costs.items()} for name, costs in found.items()}


def blocking(layout: Layout) -> Mapping[str, Cost]:
    """Costs without CPU: the proportional model in time."""
    return {op: Cost(0.0, 1.0 / float(rate)) for op, rate in layout.each.items()}


def started(layout: Layout, costs: Mapping[str, Cost], interrupted: bool = True) -> Cluster:
    """A cluster placed by Storm's default scheduler."""
    names = [(f"{op}.{n + 1}", op) for op in layout.graph.ops for n in range(layout.k)]
    machines = [f"m{i + 1}" for i in range(layout.machines)]
    homes = list(re_deal(names, layout.graph.ops, machines, layout.workers).values())
    return Cluster(layout, costs, homes, interrupted=interrupted)


def settled(layout: Layout, costs: Mapping[str, Cost], interrupted: bool = True) -> tuple[Cluster, float]:
    """A started cluster after `SETTLE_S`, and its throughput in the window that follows, rows/s."""
    cluster = started(layout, costs, interrupted)
    cluster.run(SETTLE_S)
    return cluster, cluster.run(WINDOW_S)


def plan_with_new_machine(cluster: Cluster, name: str) -> Plan:
    """Add a machine. Returns the plan of a policy that has seen the cluster without it."""
    chosen = policy_of(name)
    _, state = chosen.decide(cluster.snapshot(), None)
    cluster.add(NEW)
    plan, _ = chosen.decide(cluster.snapshot(), state)
    return plan


@dataclass(frozen=True, slots=True)
class Run:
    """A scale-out by one policy."""

    before: float  #: throughput, rows/s
    windows: tuple[float, ...]  #: throughput of each 10 s from the operation on

    @property
    def ratio(self) -> float:
        """Throughput in the last half of the record, relative to that before."""
        return settled_mean(self.windows) / self.before

    @property
    def convergence_s(self) -> float | None:
        """See `convergence.convergence_s`."""
        return convergence_s(self.windows)

    @property
    def down_s(self) -> float:
        """See `convergence.down_s`."""
        return down_s(self.windows)


def scaled(layout: Layout, costs: Mapping[str, Cost], name: str, *, windows: int = 60, interrupted: bool = True) -> Run:
    """Let it settle, add a machine, carry out the policy's plan, and go on for `windows` windows of 10 s."""
    cluster, before = settled(layout, costs, interrupted)
    cluster.apply(plan_with_new_machine(cluster, name).actions, restart_all=name == "storm-re-deal")
    return Run(before, tuple(cluster.run(WINDOW_S) for _ in range(windows)))


def compared(layout: Layout, costs: Mapping[str, Cost]) -> dict[str, float]:
    """Throughput after / before, by policy, as if actions took no time."""
    return {name: scaled(layout, costs, name, windows=4, interrupted=False).ratio for name in NAMES}
