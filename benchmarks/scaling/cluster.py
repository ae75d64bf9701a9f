"""A fluid model of operator instances on machines: queues without a limit, cores shared.

A row takes an operator `cpu_s` of a core and `block_s` of waiting. An instance works on one row at a time. The input of
an operator is split evenly among its instances. The cores of a machine are shared max-min fairly among its instances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.scaling.layouts import Layout
from qod_magics.core.actions import Action, Move, Scale
from qod_magics.core.optional import BUSY, MAX_PARALLELISM
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager
from qod_magics.simulator.engine.sharing import max_min_fair

STEP_S = 0.25
RESTART_S = 20.0  #: from stopping an instance, or ordering a new one, until it processes
SPLIT_S = 1.0  #: without rows while the input of an operator is split anew


@dataclass(frozen=True, slots=True)
class Cost:
    """What a row costs an operator."""

    cpu_s: float
    block_s: float


class Cluster:
    """Instances in virtual time. It starts with those of a layout, dealt out to its machines."""

    def __init__(
        self, layout: Layout, costs: Mapping[str, Cost], homes: Sequence[str], *, interrupted: bool = True
    ) -> None:
        """`homes`: the machine of each instance, in the order of operators; `interrupted`: actions take their time."""
        graph = layout.graph
        self.layout = layout
        self.restart_s, self.split_s = (RESTART_S, SPLIT_S) if interrupted else (0.0, 0.0)
        self.machines = [f"m{i + 1}" for i in range(layout.machines)]
        self.position = {op: o for o, op in enumerate(graph.ops)}
        self.names = [f"{op}.{n + 1}" for op in graph.ops for n in range(layout.k)]
        self.home = list(homes)
        self.op = np.array([o for o in range(len(graph.ops)) for _ in range(layout.k)])
        self.queue = np.zeros(len(self.op))
        self.paused = np.zeros(len(self.op))  #: seconds left
        self.cpu = np.array([costs[op].cpu_s for op in graph.ops])
        self.service = np.array([costs[op].cpu_s + costs[op].block_s for op in graph.ops])
        self.offered = np.array([float(layout.offered.get(op, 0)) for op in graph.ops])
        self.flow = np.zeros((len(graph.ops),) * 2)  #: rows out by row in, [from, to]
        for a, b in graph.edges:
            self.flow[self.position[a], self.position[b]] = float(layout.selectivity.get((a, b), 1))
        self.done = np.zeros(len(self.op))  #: rows/s of each instance, averaged by `run`
        self.busy = np.zeros(len(self.op))  #: share of the time at work, the same
        self._emitted = np.zeros(len(graph.ops))

    def run(self, seconds: float) -> float:
        """Run for `seconds`. Returns the throughput of the sinks meanwhile, rows/s."""
        steps = round(seconds / STEP_S)
        count = len(self.layout.graph.ops)
        width = np.bincount(self.op, minlength=count)
        machine = np.array([self.machines.index(home) for home in self.home])
        capacity = np.full(len(self.machines), self.layout.cores * STEP_S)
        rows, work = np.zeros(len(self.op)), np.zeros(len(self.op))
        cpu, service = self.cpu[self.op], self.service[self.op]
        for _ in range(steps):
            self.queue += ((self.offered * STEP_S + self._emitted) / width)[self.op]
            running = np.maximum(STEP_S - self.paused, 0.0)
            wanted = np.minimum(self.queue, running / service)
            granted = max_min_fair(wanted * cpu, machine, capacity)
            now = np.where(cpu > 0, granted / np.maximum(cpu, 1e-300), wanted)
            self.queue -= now
            self.paused = np.maximum(self.paused - STEP_S, 0.0)
            self._emitted = np.bincount(self.op, now, count) @ self.flow
            rows += now
            work += np.where(self.queue > 1e-9, running, now * service)
        self.done, self.busy = rows / seconds, work / seconds
        sinks = [self.position[sink] for sink in self.layout.graph.sinks]
        return float(np.bincount(self.op, self.done, count)[sinks].sum())

    def add(self, machine: str) -> None:
        """A machine joins."""
        self.machines.append(machine)

    def snapshot(self) -> Snapshot:
        """What a policy sees: the rates of the last `run`."""
        layout, graph = self.layout, self.layout.graph
        done = np.bincount(self.op, self.done, len(graph.ops))
        used = Counter[str]()
        for i, home in enumerate(self.home):
            used[home] += 100 * self.done[i] * self.cpu[self.op[i]]
        return Snapshot(
            tuple(TaskManager(name, layout.cores, float(used[name])) for name in self.machines),
            tuple(
                Task(
                    op,
                    graph.parents[op],
                    float(layout.offered[op]) if op in layout.offered else None,
                    None if graph.children[op] else 1,
                    None if graph.children[op] else 0.0,
                    {MAX_PARALLELISM.name: layout.most},
                )
                for op in graph.ops
            ),
            tuple(
                Stream(a, b, float(done[self.position[a]] * self.flow[self.position[a], self.position[b]]))
                for a, b in graph.edges
            ),
            tuple(
                Instance(
                    name,
                    graph.ops[self.op[i]],
                    self.home[i],
                    float(self.done[i]),
                    float(100 * self.done[i] * self.cpu[self.op[i]]),
                    False,
                    {BUSY.name: min(float(self.busy[i]), 1.0)},
                )
                for i, name in enumerate(self.names)
            ),
        )

    def apply(self, actions: Sequence[Action], *, restart_all: bool = False) -> None:
        """Do moves and scales. What moves or is new is down for RESTART_S, the rest of a scaled task for SPLIT_S.

        `restart_all`: every instance is down for RESTART_S, as with Storm's default scheduler.
        """
        for action in actions:
            if isinstance(action, Move):
                i = self.names.index(action.instance)
                self.home[i] = action.to
                self.paused[i] = self.restart_s
            elif isinstance(action, Scale):
                self._scale(action)
        if restart_all:
            self.paused[:] = self.restart_s

    def _scale(self, action: Scale) -> None:
        o = self.position[action.task]
        old = self.op == o
        k, n = int(old.sum()), len(action.to)
        waiting = self.queue[old].sum()
        self.paused[old] = np.maximum(self.paused[old], self.split_s)
        self.op = np.append(self.op, [o] * n)
        self.queue = np.append(self.queue, np.zeros(n))
        self.queue[self.op == o] = waiting / (k + n)
        self.paused = np.append(self.paused, np.full(n, self.restart_s))
        self.home += action.to
        self.names += [f"{action.task}.{k + i + 1}" for i in range(n)]
