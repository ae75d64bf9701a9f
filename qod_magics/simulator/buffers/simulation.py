"""The engine: tasks, output buffers, links and receivers in virtual time, under managers of latency constraints.

`simpy` keeps the queue of events; times are whole nanoseconds, and the same scenario and seed give the same run. Items,
checks and reports each have a random generator of their own: the input is the same under every policy (`scenario`).
Control messages take no time of their own: a report waits for its turn, an instruction acts at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import simpy

from qod_magics.core.engines import MS
from qod_magics.core.job_graph import BufferSize, Chain, Channel, ChannelPolicy, ChannelSample, Manager, Resize, Task
from qod_magics.simulator.buffers.results import Action, Results
from qod_magics.simulator.buffers.scenario import (
    BufferScenario,
    Item,
    Link,
    OutputBuffer,
    Shipment,
    Stream,
    Transit,
    Way,
    arrivals,
    streams,
)
from qod_magics.simulator.buffers.tasks import ChannelRun, Mailbox, TaskRun, Thread

_DRAIN_LOOK = MS  #: how often it is looked whether the queues of tasks that are to be chained are empty


class BufferSimulation:
    """One run. `run` may be called once.

    Args:
        scenario: the job and its input.
        policy: who sizes buffers and chains tasks.

    """

    def __init__(self, scenario: BufferScenario, policy: ChannelPolicy) -> None:
        self.scenario, self.policy = scenario, policy
        self._graph = scenario.graph
        self._env = simpy.Environment(initial_time=0)
        self._flushes = policy.flushes
        self._overhead = scenario.item_overhead
        links = {worker: Link(scenario.network) for workers in self._graph.workers.values() for worker in workers}
        self.links = links
        self.tasks: dict[Task, TaskRun] = {
            task: TaskRun(task, vertex, self._graph.worker(task), Thread())
            for vertex in scenario.vertices.values()
            for task in self._graph.tasks(vertex.name)
        }
        self._receivers: dict[Channel, TaskRun] = {}
        self.channels: dict[Channel, ChannelRun] = {}
        for channel in self._graph.all_channels():
            sender, receiver = self.tasks[channel.sender], self.tasks[channel.receiver]
            link = None if sender.worker == receiver.worker else links[sender.worker]
            self.channels[channel] = ChannelRun(
                channel,
                OutputBuffer(policy.initial_bytes),
                Way(scenario.network, link),
                BufferSize(policy.initial_bytes),
            )
            self._receivers[channel] = receiver
        self._route()
        self.managers: Sequence[Manager] = policy.managers(self._graph, scenario.constraints)
        self._mail: dict[tuple[str, int], Mailbox] = {}
        self.results = Results(scenario, policy.name, self.channels, self.tasks)
        self._subscribe()

    # --- events -------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Virtual time, ns."""
        return int(self._env.now)

    def _at(self, when: int, action: Callable[[Any], None], value: Any = None) -> None:
        self._env.timeout(max(when - self.now, 0), value).callbacks.append(lambda event: action(event.value))

    def run(self) -> Results:
        """Run to the end of the scenario. Raises AssertionError if items or bytes were lost or counted twice."""
        self._start_sources()
        interval, seed = self.scenario.interval, self.scenario.seed
        self._at(interval, self._end_interval)
        checks, reports = random.Random(f"checks {seed}"), random.Random(f"reports {seed}")
        for number, manager in enumerate(self.managers):
            self._at(interval + checks.randrange(interval), self._check, manager)
            for worker, of in self._mail:
                if of == number:
                    self._at(interval + reports.randrange(interval), self._report, (worker, number))
        self._env.run(until=self.scenario.end)
        self.results.check()
        return self.results

    # --- sources ------------------------------------------------------------------------------------------------------

    def _route(self) -> None:
        """Set which channel each group of streams takes, at each task."""
        given, job = self.scenario.streams, self._graph.job
        groups = -(-given.count // given.group)
        for task, run in self.tasks.items():
            run.outputs = {}
            for edge in job.edges:
                if edge.sender != task.vertex:
                    continue
                receivers = self._graph.receivers(task, edge.receiver)
                if edge.pattern == "pointwise":
                    run.outputs = {-1: self.channels[Channel(task, receivers[0])]}
                else:
                    # groups that share a task part again at the next all-to-all edge
                    turn = 2 if self.scenario.vertices[edge.receiver].kind == "sink" else 1
                    chosen = ((g + turn * (g // len(receivers))) % len(receivers) for g in range(groups))
                    run.outputs = {g: self.channels[Channel(task, receivers[i])] for g, i in enumerate(chosen)}

    def _start_sources(self) -> None:
        sources = [run for run in self.tasks.values() if run.vertex.kind == "source"]
        for stream in streams(self.scenario):
            steps = self._emissions(sources[stream.number % len(sources)], stream)
            self._at(stream.start, self._advance, steps)

    def _advance(self, steps: Iterator[int]) -> None:
        when = next(steps, None)
        if when is not None:
            self._at(when, self._advance, steps)

    def _emissions(self, source: TaskRun, stream: Stream) -> Iterator[int]:
        """Emit the items of a stream; yields when it goes on, if that is later. What arrives while the sender is held
        back is emitted as soon as it may write again."""
        group = stream.number // self.scenario.streams.group
        channel = source.outputs.get(group) or source.outputs[-1]
        free = self.now
        for due, bytes in arrivals(self.scenario, stream):
            if max(due, free) > self.now:
                yield max(due, free)
            source.emitted += 1
            free = self._write(channel, Item(stream.number, group, max(1, round(bytes)), bytes, 1, self.now))

    # --- channels -----------------------------------------------------------------------------------------------------

    def _write(self, run: ChannelRun, item: Item) -> int:
        """Give an item to a channel; when the sender may go on."""
        now = self.now
        meter, tag = run.meter, -1
        if meter.tag_due:
            meter.tag_due = False
            tag = run.size.epoch
        run.written += 1
        shipments = run.output.write(Transit(item, now, tag), item.bytes + self._overhead, now)
        if self._flushes:
            shipments += run.output.flush(now)
        for shipment in shipments:
            self._ship(run, shipment)
        if self._flushes:
            return max(now, run.way.prepared)
        return run.way.may_write(now) if shipments else now

    def _ship(self, run: ChannelRun, shipment: Shipment) -> None:
        arrives = run.way.ship(shipment.buffers, shipment.bytes, self.now)
        if shipment.items:
            run.in_flight += len(shipment.items)
            self._at(arrives, self._arrive, (run, shipment.items, run.cut))

    def _arrive(self, what: tuple[ChannelRun, list[Transit], int]) -> None:
        run, transits, cut = what
        run.in_flight -= len(transits)
        if cut != run.cut:
            run.dropped += len(transits)
            return
        run.arrived += len(transits)
        run.queued += len(transits)
        receiver = self._receivers[run.channel]
        thread = receiver.thread
        thread.queue.extend((receiver, run, transit) for transit in transits)
        if not thread.is_busy:
            self._next(thread)

    # --- threads ------------------------------------------------------------------------------------------------------

    def _next(self, thread: Thread) -> None:
        """Work on what is queued, until some work takes time."""
        thread.is_busy = False
        while thread.queue and not thread.is_halted:
            task, run, transit = thread.queue.popleft()
            run.queued -= 1
            run.entered += 1
            run.meter.enter(run.channel, transit.exits, transit.ships, transit.tag, self.now)
            if self._work(thread, task, transit.item):
                return

    def _work(self, thread: Thread, task: TaskRun, item: Item) -> bool:
        """Take an item into user code; whether the thread is busy then."""
        now, takes = self.now, task.vertex.work
        emitted = task.enter(item, now)
        if task.vertex.kind == "sink":
            self.results.leave(item, now)
        if emitted is not None:
            task.in_service += 1
        if not takes:
            return self._leave(thread, task, emitted)
        task.meter.work(now, takes)
        thread.is_busy = True
        self._at(now + takes, self._done, (thread, task, emitted))
        return True

    def _done(self, what: tuple[Thread, TaskRun, Item | None]) -> None:
        if not self._leave(*what):
            self._next(what[0])

    def _leave(self, thread: Thread, task: TaskRun, item: Item | None) -> bool:
        """Pass an item that leaves user code to the next task of a chain by call, else to a channel.

        Return whether the thread is busy then, or held back. `item` None: the task emits nothing.
        """
        if item is None:
            return False
        task.in_service -= 1
        task.emitted += 1
        task.meter.leave(task.task, self.now)
        if task.following is not None:
            return self._work(thread, task.following, item)
        free = self._write(task.output(item), item)
        if free <= self.now:
            return False
        thread.is_busy = True
        self._at(free, self._next, thread)
        return True

    # --- measuring ----------------------------------------------------------------------------------------------------

    def _subscribe(self) -> None:
        for number, manager in enumerate(self.managers):
            tasks, channels = manager.interests()
            for task in tasks:
                run = self.tasks[task]
                run.meter.mailboxes.append(self._box(run.worker, number))
            for channel in channels:
                meter = self.channels[channel].meter
                meter.at_sender.append(self._box(self.tasks[channel.sender].worker, number))
                meter.at_receiver.append(self._box(self.tasks[channel.receiver].worker, number))

    def _box(self, worker: str, manager: int) -> Mailbox:
        return self._mail.setdefault((worker, manager), Mailbox())

    def _end_interval(self, _: None) -> None:
        interval = self.scenario.interval
        self.results.end_interval(self.now)
        for channel, run in self.channels.items():
            run.meter.tag_due = True
            life = run.output.take_life()
            if life is not None and run.meter.at_sender and not run.is_chained:
                sample = ChannelSample(channel, life / MS, run.size.epoch)
                for box in run.meter.at_sender:
                    box.life_times.append(sample)
                    box.sizes[channel] = run.size
        for task, each in self.tasks.items():
            each.meter.sample_due = True
            cores = each.meter.take_busy(self.now) / interval
            for box in each.meter.mailboxes:
                box.cpu.append((task, cores))
        self._at(self.now + interval, self._end_interval)

    def _report(self, what: tuple[str, int]) -> None:
        report = self._mail[what].take()
        if report is not None:
            self.managers[what[1]].receive(report, self.now)
        self._at(self.now + self.scenario.interval, self._report, what)

    # --- acting -------------------------------------------------------------------------------------------------------

    def _check(self, manager: Manager) -> None:
        for instruction in manager.check(self.now):
            if isinstance(instruction, Resize):
                done = self._resize(instruction)
            elif isinstance(instruction, Chain):
                done = self._chain(instruction)
            else:
                done = True
            self.results.actions.append(Action(self.now, manager.worker, instruction, done))
        self._at(self.now + self.scenario.interval, self._check, manager)

    def _resize(self, resize: Resize) -> bool:
        run = self.channels[resize.channel]
        size = run.size.updated(resize.bytes, resize.epoch)
        if size == run.size or run.is_chained:
            return False
        run.size = size
        for shipment in run.output.resize(size.bytes, self.now):
            self._ship(run, shipment)
        run.output.take_life()  # of buffers of the old size
        for box in run.meter.at_sender:
            box.sizes[resize.channel] = size
        return True

    def _chain(self, chain: Chain) -> bool:
        runs = [self.tasks[task] for task in chain.tasks]
        inner = [self.channels[Channel(*pair)] for pair in pairwise(chain.tasks)]
        if any(channel.is_chained for channel in self._around(runs)) or any(r.thread.is_halted for r in runs):
            return False
        if chain.queued == "drop":
            for channel, run in zip(inner, runs[1:], strict=True):
                self._drop(channel, run.thread)
            self._join(runs, inner)
        else:
            runs[0].thread.is_halted = True
            self._drain((runs, inner))
        return True

    def _around(self, runs: Sequence[TaskRun]) -> Iterator[ChannelRun]:
        """Yield the channels of which a chain would be part."""
        for run in runs:
            for edge in self._graph.job.edges:
                if edge.sender == run.task.vertex and edge.pattern == "pointwise":
                    yield run.outputs[-1]
                elif edge.receiver == run.task.vertex and edge.pattern == "pointwise":
                    (sender,) = self._graph.senders(run.task, edge.sender)
                    yield self.channels[Channel(sender, run.task)]

    def _drop(self, channel: ChannelRun, thread: Thread) -> None:
        channel.cut += 1
        channel.dropped += channel.output.discard() + channel.queued
        channel.arrived -= channel.queued
        channel.queued = 0
        kept = [each for each in thread.queue if each[1] is not channel]
        thread.queue.clear()
        thread.queue.extend(kept)

    def _drain(self, what: tuple[list[TaskRun], list[ChannelRun]]) -> None:
        """Wait until nothing is between the tasks; ship what lies in open buffers."""
        runs, inner = what
        for channel in inner:
            for shipment in channel.output.flush(self.now):
                self._ship(channel, shipment)
        if any(c.in_flight or c.queued for c in inner) or any(run.thread.is_busy for run in runs):
            self._at(self.now + _DRAIN_LOOK, self._drain, what)
            return
        runs[0].thread.is_halted = False
        self._join(runs, inner)
        self._next(runs[0].thread)

    def _join(self, runs: Sequence[TaskRun], inner: Sequence[ChannelRun]) -> None:
        for channel in inner:
            channel.is_chained = True
        for first, second in pairwise(runs):
            first.following = second
        tasks = tuple(run.task for run in runs)
        for box in {id(b): b for run in runs for b in run.meter.mailboxes}.values():
            box.chains.append(tasks)
