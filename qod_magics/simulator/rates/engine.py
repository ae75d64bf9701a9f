"""The engine: state, and its change in one step of virtual time. Vectorised; exact in rows and CPU.

At the end of each step, by channel: rows arrived = read + waiting, and read = kept + dropped, in whole numbers; by
task manager, CPU used <= capacity.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from qod_magics.simulator.rates.cohorts import Cohorts
from qod_magics.simulator.rates.queues import SAME, Arrivals, Queues, max_min_fair
from qod_magics.simulator.rates.simulation import Machine, Simulation
from qod_magics.simulator.rates.wiring import Array, Totals, Wiring

#: Maximum share of a task manager's cores for background and overhead.
_OTHERS_SHARE = 0.9
#: Maximum share of the rest for start-up work outside the instances.
_STARTING_SHARE = 0.5
NOWHERE = -1
#: Time constants after which the slowdown of a warm-up is below floating-point precision.
WARM = 60.0


class Engine:
    """State and step. Times are seconds since the start; CPU is in seconds."""

    def __init__(self, simulation: Simulation, wiring: Wiring) -> None:
        self.wiring, self.step_s = wiring, simulation.step_s
        self.steps = 0
        self.machines: Sequence[Machine] = simulation.machines
        self.moves = simulation.moves
        topics = {feed.topic: feed.rate for feed in simulation.scenario.topics}
        rates = [topics[task.topic] for task in wiring.tasks if task.topic is not None]
        self.arrivals = Arrivals(rates, simulation.step_s, simulation.scenario.duration_s)
        self._period_s = simulation.period_s
        self._backgrounds = list(dict.fromkeys(machine.background for machine in self.machines))
        number = {background: n for n, background in enumerate(self._backgrounds)}
        self._background_of = np.array([number[machine.background] for machine in self.machines])
        instances, channels, edges = len(wiring.instances), len(wiring.channel_edge), len(wiring.edges)
        self.cores = np.array([machine.cores for machine in self.machines])
        self.cost = np.array([machine.cost for machine in self.machines])
        self._alike = bool((self.cost == 1.0).all())
        # by instance
        self.where = np.full(instances, NOWHERE)  #: task manager
        self._host = np.maximum(self.where, 0)  #: `where` during a step, 0 for NOWHERE
        self.running = np.zeros(instances, bool)
        self.started_at = np.zeros(instances)
        self._last_start = 0.0  #: of any instance
        self.cpu = np.zeros(instances)  #: used since the start
        self.out = np.zeros(instances, np.int64)
        self._owed = np.zeros(instances)  #: CPU of the start, not yet used
        self._credit = np.zeros(instances)  #: CPU granted, too little for one more row
        self._carry_out = np.zeros(instances)
        self._weight_out = np.ones(instances)  #: probability with which output rows were kept
        # by channel
        self.queues = Queues(channels)
        self.arrived = np.zeros(channels, np.int64)
        self.read = np.zeros(channels, np.int64)
        self.kept = np.zeros(channels, np.int64)
        self._last_came = np.ones(channels)  #: probability with which the rows last read were kept upstream
        self._batch = np.zeros(channels, np.int64)  #: rows left of a micro-batch
        self.batch_began = np.full(instances, -np.inf)
        self.in_batch = np.zeros(instances, bool)
        # by edge
        self.listening = np.zeros(edges, bool)  #: has a reader: rows without one are dropped uncounted
        self.pool = np.zeros(edges, np.int64)  #: rows on the topic, not yet in a channel
        self._pool_weight = np.zeros(edges)
        self.held = np.zeros(edges, np.int64)  #: rows that producers could not send
        self.came = np.zeros(edges, np.int64)  #: rows that reached the topic
        late = wiring.latency_s / self.step_s - (np.arange(edges) >= wiring.sources)  # a stream takes a step anyway
        self._late_steps = np.maximum(late, 0.0)
        self._any_late = bool(self._late_steps.any())
        looks = int(self._late_steps.max(initial=0.0)) + 2
        self._came_before = deque([self.came.copy() for _ in range(looks)], maxlen=looks)  #: newest first
        # by outlet
        self.sent = np.zeros(len(wiring.outlet_edge), np.int64)
        self.unsent = np.zeros(len(wiring.outlet_edge), np.int64)  #: dropped at the sending end
        self._carry_sent = np.zeros(len(wiring.outlet_edge))
        # by task manager
        self.pace_s = np.zeros(len(self.machines))  #: minimum interval of micro-batches
        self.gaps_s: Mapping[str, float] = {}  #: the same by task, where it has one of its own
        self.busy = np.zeros(len(self.machines))  #: CPU used since the start, others included
        self.up = np.zeros(len(self.machines), bool)
        self._starting = np.zeros(len(self.machines))  #: start-up CPU outside the instances, not yet used
        self.broker_down = False
        #: each edge has one channel, so that all of its rows go there
        self._undivided = np.array_equal(np.sort(wiring.channel_edge), np.arange(edges))
        self._sole_outlets = np.array_equal(
            wiring.outlet_edge, np.arange(wiring.sources, edges)
        )  #: one for each stream
        self._from_outside = wiring.channel_edge < wiring.sources  #: by channel
        self.any_loses = bool(wiring.loses_weight.any())  #: else `desired` has no effect
        #: rows by their arrival; None: latencies are not measured
        self.cohorts = Cohorts(wiring, self.step_s, self._period_s) if simulation.measures_latency else None
        self.batch_s = np.zeros(instances)  #: time in micro-batches since the start, while latencies are measured
        self.batches = np.zeros(instances, np.int64)  #: micro-batches begun since the start
        tasks = np.ones(len(wiring.tasks))
        self.turn(np.ones(edges), tasks, tasks)

    def __repr__(self) -> str:
        return f"engine of {len(self.where)} instances at {self.steps * self.step_s:.1f} s"

    @property
    def now(self) -> float:
        """Return seconds since the start."""
        return self.steps * self.step_s

    @property
    def waiting(self) -> Array:
        """Return rows not yet read, by edge."""
        return self.wiring.by_edge(self.queues.waiting) + self.pool

    def turn(self, keep: Array, accept: Array, desired: Array) -> None:
        """Set the dials: `keep` by edge, `accept` and `desired` by task."""
        wiring = self.wiring
        self.keep, self.accept, self.desired = keep, accept, desired
        edge = wiring.channel_edge
        self._passing = np.where(self._from_outside, keep[edge], accept[wiring.edge_target[edge]])  #: by channel
        self._sending = keep[wiring.outlet_edge]
        self._sending_weight = np.maximum(self._sending, SAME)

    def start(self, instance: int, machine: int, fresh: bool) -> None:
        """Start an instance on a task manager; `fresh`: at the cost of a start."""
        self.where[instance], self.running[instance] = machine, True
        self.started_at[instance] = self._last_start = self.now
        self._owed[instance] = self.moves.start_cpu_s if fresh else 0.0
        self._starting[machine] += self.moves.start_overhead_s if fresh else 0.0
        self._credit[instance], self.in_batch[instance] = 0.0, False
        self.batch_began[instance] = -np.inf
        self._batch[self.wiring.channels_of(instance)] = 0

    def assign_partitions(self, task: int, parallelism: int) -> None:
        """Assign the partitions of a task to this many of its instances. Call it while none of them runs."""
        self.wiring = self.wiring.with_parallelism(task, parallelism)
        self.in_batch[self.wiring.instance_task == task] = False

    def rewire(self, wiring: Wiring, accept: Array | None = None) -> None:
        """Set the wiring after tasks were fused or unfused; none of them runs. `accept`: new values of the dials."""
        self.wiring = wiring
        self.any_loses = bool(wiring.loses_weight.any())
        self.turn(self.keep, self.accept if accept is None else accept, self.desired)

    def stop(self, instance: int) -> None:
        """Stop an instance; what it did so far counts."""
        self.running[instance] = False
        if self.cohorts is not None:
            self.cohorts.finish(np.array([instance]), self.now)

    def give_back(self, instance: int, done: Totals) -> None:
        """Kill an instance: rows read beyond these totals return to its queues. Rows sent stay sent."""
        wiring = self.wiring
        channels = np.flatnonzero(wiring.channel_instance == instance)
        if self.cohorts is not None:
            rows = self.read[channels] - done.read[channels]
            self.cohorts.give_back(instance, rows, channels, float(done.at[instance]), self.now)
        self.stop(instance)
        for c in channels.tolist():
            self.queues.put_back(c, int(self.read[c] - done.read[c]), float(self._last_came[c]))
            self.read[c], self.kept[c] = done.read[c], done.kept[c]
        outlets = wiring.outlet_instance == instance
        self.out[instance] = done.out[instance]
        self.sent[outlets], self.unsent[outlets] = done.sent[outlets], done.unsent[outlets]

    def step(self) -> None:
        """Advance time by one step."""
        self._host = np.maximum(self.where, 0)  # any index will do: unplaced instances use no CPU
        self._arrive()
        if not self.broker_down:
            self._spread()
        used = self._work()
        self._account(used)
        self.steps += 1
        if self.cohorts is not None:
            self.cohorts.settle()

    def _arrive(self) -> None:
        sources = slice(0, self.wiring.sources)
        rows = np.where(self.listening[sources], self.arrivals.step(self.steps), 0)
        if self.broker_down:
            self.held[sources] += rows
            return
        rows = rows + self.held[sources]
        self.held[sources] = 0
        self.pool[sources] += rows
        self._pool_weight[sources] += rows
        self.came[sources] += rows
        if self.cohorts is not None:
            self.cohorts.arrive(rows, self.now)

    def _spread(self) -> None:
        """Distribute rows from topics to channels by share. Remainders go to the channels furthest behind theirs."""
        edge = self.wiring.channel_edge
        young = self._young() if self._any_late else None
        readable = self.pool if young is None else self.pool - young
        pool = readable[edge]
        if not pool.any():
            return
        rows = pool if self._undivided else self._divided(pool, readable)
        probability = np.minimum(self.pool / np.maximum(self._pool_weight, SAME), 1.0)
        self.queues.put(rows, probability[edge])
        self.arrived += rows
        if self.cohorts is not None:
            self.cohorts.spread(rows, self.pool, self.wiring)
        if young is None:
            self.pool[:], self._pool_weight[:] = 0, 0.0
        else:
            self._pool_weight = self._pool_weight * young / np.maximum(self.pool, 1)
            self.pool = young

    def _divided(self, pool: Array, readable: Array) -> Array:
        """Return rows for each channel, of those readable on its edge (`pool` by channel, `readable` by edge)."""
        edge = self.wiring.channel_edge
        rows = np.floor(pool * self.wiring.channel_share + 1e-9).astype(np.int64)
        left = readable - self.wiring.by_edge(rows)
        odd = (left[edge] > 0).nonzero()[0]
        if odd.size:
            behind = self.wiring.channel_share[odd] * self.came[edge[odd]] - (self.arrived[odd] + rows[odd])
            odd = odd[np.lexsort((-behind, edge[odd]))]
            of = edge[odd]
            rank = np.arange(len(odd)) - np.searchsorted(of, of)
            rows[odd[rank < left[of]]] += 1
        return rows

    def _young(self) -> Array:
        """Return rows on each topic that arrived too recently to be readable."""
        self._came_before.appendleft(self.came.copy())
        came, steps = np.array(self._came_before, float), self._late_steps.astype(int)
        each, part = np.arange(came.shape[1]), self._late_steps - steps
        readable = came[steps, each] * (1.0 - part) + came[steps + 1, each] * part
        young: Array = np.clip(np.rint(self.came - readable).astype(np.int64), 0, self.pool)
        return young

    def _work(self) -> Array:
        """Read, shed, process and send. Returns the CPU used, by instance."""
        wiring, dt = self.wiring, self.step_s
        of = wiring.channel_instance
        accept = self._passing
        active = np.zeros_like(self.running) if self.broker_down else self.running
        all_active, all_running = bool(active.all()), bool(self.running.all())
        read_s, work_s = self._costs()
        fixed_s = wiring.fixed * dt if self._alike else wiring.fixed * self.cost[self.where] * dt
        most = self._batches(active, read_s, work_s) if wiring.micro.size else None
        by_channel = self.queues.work(accept, read_s, work_s)
        if most is not None:
            share = most / np.maximum(self.queues.waiting, 1)
            by_channel = by_channel * np.minimum(share, 1.0)
        if not all_active:
            by_channel = np.where(active[of], by_channel, 0.0)
        rows_s = wiring.by_instance(by_channel)
        base = fixed_s + self._owed
        if not all_running:
            base = np.where(self.running, base, 0.0)
        wants = np.minimum(base + np.maximum(rows_s - self._credit, 0.0), dt)
        if not all_running:
            wants = np.where(self.running, wants, 0.0)
        used = max_min_fair(wants, self._host, self._capacity())
        if self._owed.any():
            self._owed = np.maximum(self._owed - np.maximum(used - fixed_s, 0.0), 0.0)
        budget = np.maximum(used - base, 0.0) + self._credit
        enough = rows_s <= budget * (1 + 1e-12)
        each = np.full(len(of), np.inf)
        short = (~enough)[of].nonzero()[0]  #: channels
        if short.size:
            share = budget / np.maximum(rows_s, 1e-12)
            each[short] = by_channel[short] * np.minimum(share[of[short]], 1e12)
        if not all_active:
            each = np.where(active[of], each, 0.0)
        there = None if self.cohorts is None else self.queues.waiting
        taken = self.queues.take(each, accept, read_s, work_s, most)
        self._credit = np.zeros(len(enough))
        if short.size:
            left = np.zeros(len(of))
            left[short] = taken.rest_s[short]
            self._credit = wiring.by_instance(left)
        self.read += taken.read
        self.kept += taken.kept
        if most is not None:
            self._batch -= taken.read
        came = np.minimum(taken.read / np.maximum(taken.weight_read, SAME), 1.0)
        self._last_came = np.where(taken.read > 0, came, self._last_came)
        if self.cohorts is not None and there is not None:
            self.cohorts.read(taken.read, taken.kept, there, self.now + dt, wiring)
        self._send(taken.kept, taken.weight)
        return used

    def _costs(self) -> tuple[Array, Array]:
        """Return the CPU seconds per row read, and per row kept, by channel: higher while an instance warms up."""
        wiring = self.wiring
        warm_up_s = max(self.moves.warm_up_s, 1e-9)
        all_warm = self.now - self._last_start >= WARM * warm_up_s
        if self._alike and all_warm:
            return wiring.read_s, wiring.work_s
        if self._alike:
            read_s, work_s = wiring.read_s.copy(), wiring.work_s.copy()
        else:
            here = self.cost[self.where[wiring.channel_instance]]
            read_s, work_s = wiring.read_s * here, wiring.work_s * here
        if all_warm:
            return read_s, work_s
        age = (self.now - self.started_at) / warm_up_s
        young = (age < WARM)[wiring.channel_instance].nonzero()[0]
        slow = 1.0 + (self.moves.slowdown - 1.0) * np.exp(-age[wiring.channel_instance[young]])
        read_s[young] *= slow
        work_s[young] *= slow
        return read_s, work_s

    def _batches(self, active: Array, read_s: Array, work_s: Array) -> Array:
        """Return rows that each channel may read now: in real-time mode all, else the rest of its micro-batch."""
        wiring = self.wiring
        micro = wiring.micro
        waiting = self.queues.waiting
        idle = micro[active[micro] & ~self.in_batch[micro]]
        interval_s = np.maximum(wiring.trigger_s[idle], self.pace_s[self._host[idle]])
        if self.gaps_s:
            own = [self.gaps_s.get(task.id, 0.0) for task in wiring.tasks]
            interval_s = np.maximum(interval_s, np.array(own)[wiring.instance_task[idle]])
        due = idle[self.batch_began[idle] + interval_s <= self.now + 1e-9]
        due = due[wiring.by_instance(waiting)[due] > 0]
        if due.size:
            cost = wiring.by_instance(waiting * (read_s + work_s))
            part = np.minimum(self._period_s / np.maximum(cost, 1e-12), 1.0)
            begins = np.zeros(len(wiring.instances), bool)
            begins[due] = True
            channels = begins[wiring.channel_instance]
            bound = np.ceil(waiting * part[wiring.channel_instance]).astype(np.int64)
            self._batch = np.where(channels, bound, self._batch)
            self.in_batch[due], self.batch_began[due] = True, self.now
            self.batches[due] += 1
        every = np.full(len(waiting), np.iinfo(np.int64).max)
        is_micro = np.zeros(len(wiring.instances), bool)
        is_micro[micro] = True
        return np.where(is_micro[wiring.channel_instance], self._batch, every)

    def batches_over(self) -> Array:
        """Return instances whose micro-batch has just ended."""
        micro = self.wiring.micro
        if not micro.size:
            return micro
        left = self.wiring.by_instance(self._batch)
        over = micro[self.in_batch[micro] & (left[micro] <= 0)]
        self.in_batch[over] = False
        if self.cohorts is not None:
            self.cohorts.finish(over, self.now)
        return over

    def _send(self, kept: Array, weight: Array) -> None:
        wiring = self.wiring
        kept, weight = wiring.by_instance(kept), wiring.by_instance(weight)
        probability = np.where(kept > 0, kept / np.maximum(weight, SAME), self._weight_out)
        if self.any_loses:
            probability = np.where(wiring.loses_weight, self.desired[wiring.instance_task], probability)
        self._weight_out = np.minimum(np.maximum(probability, SAME), 1.0)
        exact = kept * wiring.selectivity + self._carry_out
        out = (exact + 1e-9).astype(np.int64)
        self._carry_out = np.maximum(exact - out, 0.0)
        self.out += out
        if not wiring.outlet_edge.size:
            return
        offered = out[wiring.outlet_instance]
        if not self.listening.all():
            offered = np.where(self.listening[wiring.outlet_edge], offered, 0)
        exact = offered * self._sending + self._carry_sent
        sent = np.minimum((exact + 1e-9).astype(np.int64), offered)
        self._carry_sent = np.minimum(np.maximum(exact - sent, 0.0), 1.0)
        self.sent += sent
        if self.cohorts is not None:
            self.cohorts.send(sent, wiring)
        self.unsent += offered - sent
        p = self._weight_out[wiring.outlet_instance] * self._sending_weight
        if self._sole_outlets:
            streams = slice(wiring.sources, None)
            self._pool_weight[streams] += sent / p
            self.pool[streams] += sent
            self.came[streams] += sent
            return
        edges = len(wiring.edges)
        total = np.bincount(wiring.outlet_edge, sent, edges).astype(np.int64)
        self._pool_weight += np.bincount(wiring.outlet_edge, sent / p, edges)
        self.pool += total
        self.came += total

    def _others(self) -> Array:
        """Return the CPU seconds that each task manager uses outside its tasks in this step."""
        count = len(self.machines)
        busy = np.where(self.running, self.wiring.overhead, 0.0)
        overhead = np.bincount(self._host, busy, count)
        background = np.array([each.rate(self.now) for each in self._backgrounds])[self._background_of]
        always: Array = (
            np.where(self.up, np.minimum(background + overhead, _OTHERS_SHARE * self.cores), 0.0) * self.step_s
        )
        if not self._starting.any():
            return always
        due = self._starting * -np.expm1(-self.step_s / max(self.moves.warm_up_s, 1e-9))
        starting = np.minimum(due, _STARTING_SHARE * (self.cores * self.step_s - always))
        self._starting -= starting
        others: Array = always + starting
        return others

    def _capacity(self) -> Array:
        self._others_now = self._others()
        capacity: Array = np.where(self.up, self.cores * self.step_s, 0.0) - self._others_now
        return capacity

    def _account(self, used: Array) -> None:
        self.cpu += used
        if self.cohorts is not None and self.wiring.micro.size:
            self._account_batches(used)
        self.busy += np.bincount(self._host, used, len(self.machines)) + self._others_now

    def _account_batches(self, used: Array) -> None:
        """Count the time of batches: one that goes on takes the whole step; one that ends in it, the CPU that it
        used."""
        micro = self.wiring.micro
        at_work = self.in_batch[micro] & self.running[micro]
        goes_on = self.wiring.by_instance(self._batch)[micro] > 0
        self.batch_s[micro] += np.where(at_work, np.where(goes_on, self.step_s, used[micro]), 0.0)


def unbalanced(engine: Engine) -> list[str]:
    """Return violations of row conservation, by channel and edge: always empty."""
    wrong = []
    for c in np.flatnonzero(engine.arrived != engine.read + engine.queues.waiting):
        wrong.append(f"channel {c}: arrived {engine.arrived[c]}, read {engine.read[c]}")
    came = engine.wiring.by_edge(engine.arrived) + engine.pool
    for e in np.flatnonzero(came != engine.came):
        wrong.append(f"edge {engine.wiring.edge_names[e]}: came {engine.came[e]}, found {came[e]}")
    if engine.cohorts is not None:
        wrong += _uneven(engine.cohorts.topics, engine.pool, "topic")
        wrong += _uneven(engine.cohorts.waiting, engine.queues.waiting, "channel")
    if (engine.kept > engine.read).any() or (engine.kept < 0).any():
        wrong.append("more rows kept than read")
    return wrong


def _uneven(rows: Array, there: Array, place: str) -> list[str]:
    """Return places where the rows of all cohorts are not those that are there."""
    found = rows.sum(axis=1)
    wrong = np.abs(found - there) > 1e-6 * np.maximum(there, 1)
    return [f"{place} {p}: {there[p]} rows, by cohort {found[p]}" for p in wrong.nonzero()[0].tolist()]
