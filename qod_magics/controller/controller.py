"""One turn of the loop: observe, mark warm-ups, decide, set dials, apply, log, record, publish."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from qod_magics.controller import warm_up
from qod_magics.controller.clock import Clock, SystemClock
from qod_magics.controller.dials import (
    SETTLED_WITHIN,
    Drains,
    Limits,
    backlogs,
    dials,
    hastened,
    hold,
    opened,
    overridden,
    recent,
    unsettled,
    waiting,
)
from qod_magics.controller.journal import Journal, describe
from qod_magics.controller.log import Cycle, Decision, DecisionLog
from qod_magics.controller.plan_check import check_plan, refusals
from qod_magics.controller.reaction import CHECKS, Rates, RateWatch
from qod_magics.controller.record import Recording
from qod_magics.controller.runtime_calls import Actuator, BoundedCall, Sensor, ThreadWorker, Worker
from qod_magics.core.json_form import snapshot_to_json
from qod_magics.core.load import current_accuracy
from qod_magics.core.plan import Edge, Plan, ReleaseNode, edge_name
from qod_magics.core.policy import LearningPolicy, Policy, RememberingPolicy, placer_of, reasons_of
from qod_magics.core.runtime import Dials, Measured, Observation, PlacingRuntime, Runtime
from qod_magics.core.snapshot import Snapshot, replace
from qod_magics.errors import UsageProblem

Subscriber = Callable[[Cycle], object]

#: Seconds for which a cycle waits for the runtime at least, whatever the period: a runtime waits some seconds for a
#: task manager that does not answer, and what it found out from the others would come too late.
SLOWEST_OBSERVE_S, SLOWEST_APPLY_S = 5.0, 3.0


class Controller:
    """Decides for one runtime with one policy. `step` makes one cycle; nothing happens by itself.

    No failure of the runtime, the policy, the recording or a subscriber ends the loop: a fault is reported once in the
    log and as an event, when it begins and when it is over, and the dials stay as they were.

    `step` and `close` belong to one thread at a time (`ControllerThread`); the rest is safe from any. The runtime is
    called on the controller's own workers: at most one `observe` and one `apply` at a time, but `observe` may run
    during a slow `apply`.

    - `period_s`: length of a cycle in seconds; also the unit of the limits on backlogs
    - `warm_up_timeout_s`: seconds after which a warm-up ends at the latest
    - `drain_periods`: periods within which to drain a backlog
    - `observe_timeout_s`: how long a cycle waits for an observation (None: 2 periods, but no less than a runtime waits
      for a task manager that does not answer)
    - `worker`: makes the worker for calls to the runtime, given its name
    """

    def __init__(
        self,
        runtime: Runtime,
        policy: Policy,
        *,
        period_s: float = 5.0,
        clock: Clock | None = None,
        recording: Recording | None = None,
        warm_up_timeout_s: float = 60.0,
        drain_periods: float = 2.0,
        observe_timeout_s: float | None = None,
        log: DecisionLog | None = None,
        worker: Callable[[str], Worker] = ThreadWorker,
    ) -> None:
        self.runtime = runtime
        self.clock: Clock = clock or SystemClock()
        self.log = log if log is not None else DecisionLog()
        self.warm_up_timeout_s = warm_up_timeout_s
        self.drain_periods = drain_periods
        self.period_s = period_s
        self.observe_timeout_s = observe_timeout_s
        self.policy = policy
        self._paused = False
        self._last: Cycle | None = None
        self._planned: Plan | None = None  #: the last plan, also if cycles without one followed
        #: seconds after the last cycle at which to make one more before the next on time; None: none is needed
        self.again_s: float | None = None
        self._warm = warm_up.WarmUp()
        self._drains = Drains()
        self._journal = Journal(self.log, recording, self.clock)
        observing: BoundedCall[Observation] = BoundedCall(worker("qod-observe"))
        applying: BoundedCall[None] = BoundedCall(worker("qod-apply"))
        checking: BoundedCall[Rates] = BoundedCall(worker("qod-input-rates"))
        self._calls = (observing, applying, checking)
        self._sensor = Sensor(runtime, self._journal, self.clock, observing)
        self._actuator = Actuator(runtime, self._journal, applying)
        self._rates = RateWatch(runtime, self._journal, self.clock, checking)
        self._by_hand: Mapping[Edge, float] = {}
        self._subscribers: tuple[Subscriber, ...] = ()

    def __repr__(self) -> str:
        does = "recommends" if self._paused else "decides"
        when = "not yet" if self._last is None else f"last in cycle {self._last.number}"
        return f"controller: {self._policy.name} {does} every {self._period_s:g} s, {when}"

    @property
    def period_s(self) -> float:
        """Length of a cycle, seconds; can be changed while the loop runs. Raises UsageProblem unless above 0."""
        return self._period_s

    @period_s.setter
    def period_s(self, seconds: float) -> None:
        if not (math.isfinite(seconds) and seconds > 0):
            raise UsageProblem(
                f"period must be greater than 0 s, got {seconds!r}",
                value=seconds,
                rule="positive",
            )
        self._period_s = float(seconds)

    @property
    def longest_wait_s(self) -> float:
        """Return for how many seconds a cycle waits for the runtime at most."""
        return self._observe_timeout_s + self._apply_timeout_s

    @property
    def _observe_timeout_s(self) -> float:
        return max(2 * self.period_s, SLOWEST_OBSERVE_S) if self.observe_timeout_s is None else self.observe_timeout_s

    @property
    def _apply_timeout_s(self) -> float:
        return max(self.period_s, SLOWEST_APPLY_S) + 1.0

    @property
    def policy(self) -> Policy:
        """Return the policy that decides; a new one begins without state or memory. Set it between cycles."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._state: Any = None
        self._memory: Any = None  #: of a policy that learns
        self.adjust(policy)

    def adjust(self, policy: Policy) -> None:
        """Replace the policy by a variant of itself, which takes over state and memory. Call it between cycles."""
        self._policy = policy
        if isinstance(self.runtime, PlacingRuntime):
            self.runtime.place_by(placer_of(policy))

    @property
    def learned(self) -> Any:
        """Return what the policy has learned, as plain JSON values; None: nothing yet, or nothing that outlives the
        process. Read it between cycles."""
        policy, memory = self._policy, self._memory
        return policy.kept(memory) if isinstance(policy, RememberingPolicy) and memory is not None else None

    def recall(self, learned: Any) -> bool:
        """Go on with what a policy has `learned` in an earlier process. Returns whether it did: another policy, or one
        of another release, begins without. Call it between cycles, once the tasks are there: what is learned of others
        is forgotten in each cycle."""
        policy = self._policy
        if learned is None or not isinstance(policy, RememberingPolicy):
            return False
        try:
            self._memory = policy.recalled(learned, self._memory)
        except (ValueError, TypeError, LookupError):
            return False
        return True

    @property
    def recording(self) -> Recording | None:
        """Return where cycles are recorded."""
        return self._journal.recording

    def record(self, recording: Recording | None) -> None:
        """Append cycles to another recording from now on (None: to none). Call it between cycles."""
        self._journal.close()
        self._journal.recording = recording

    @property
    def last(self) -> Cycle | None:
        """Return the last finished cycle."""
        return self._last

    @property
    def dials(self) -> Dials | None:
        """Return the settings known to be in force; None before any were applied."""
        return self._actuator.in_force

    @property
    def paused(self) -> bool:
        """Return whether plans are made but not applied."""
        return self._paused

    def pause(self) -> None:
        """Recommend only: from now on plans are made, logged and recorded, but not applied."""
        if not self._paused:
            self._paused = True
            self.note("paused", "plans are recommended, not applied, from now on")

    def resume(self) -> None:
        """Apply plans again, from the next cycle on."""
        if self._paused:
            self._paused = False
            self.note("resumed", "plans are applied from now on")

    def open_shedders(self) -> None:
        """Have the runtime keep every row until a plan is applied: no shedding. Call it between cycles."""
        if self._planned is not None:
            plan, settings = opened(self._planned)
            self.runtime.apply(plan, settings)
            self._actuator.in_force = settings

    @property
    def overrides(self) -> Mapping[Edge, float]:
        """Return the non-drop probabilities that are held by hand."""
        return self._by_hand

    def override(self, edge: Edge, d: float | None) -> None:
        """Hold a shedder's non-drop probability from the next cycle on; None gives it back to the plan.

        Plans still say what the policy wants; the recording's dials say what is in force. Raises UsageProblem for a
        probability outside 0..1.
        """
        if d is not None and not 0 <= d <= 1:
            raise UsageProblem(
                f"a non-drop probability lies between 0 and 1, not at {d!r}", value=d, rule="between 0 and 1"
            )
        held = {key: value for key, value in self._by_hand.items() if key != edge}
        self._by_hand = held if d is None else {**held, edge: float(d)}
        name = edge_name(edge)
        words = f"{name} keeps {d:.2f} of its rows, by hand" if d is not None else f"{name} follows the plan again"
        later = ", once plans are applied again" if self._paused else ""
        self.note("override", words + later, stream=name, d=d)

    def release(self, streams: Collection[str]) -> None:
        """Give back the shedders held by hand whose edge has no end among these streams. A later stream of the same
        name is not held. An edge within a fused task stays held until it is unfused."""
        for edge in self._by_hand:
            if any(stream is not None and stream not in streams for stream in edge):
                self.override(edge, None)

    def annotate(self, **annotations: Any) -> None:
        """Add keys to the recording's lines from now on (`phase="overload"`); None takes one away.

        Raises UsageProblem for a key that the format uses itself.
        """
        self._journal.annotate(annotations)

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call `callback` with each finished cycle, on the controller's thread. Returns a function to unsubscribe.

        Its errors go into the log. It should be quick: the loop waits for it.
        """
        self._subscribers = (*self._subscribers, callback)

        def unsubscribe() -> None:
            self._subscribers = tuple(each for each in self._subscribers if each is not callback)

        return unsubscribe

    def note(self, kind: str, words: str, **detail: Any) -> None:
        """Put something that happened outside the cluster into the next cycle's events, the log and the recording."""
        self._journal.note(kind, words, **detail)

    def why(self, name: str) -> str:
        """Return what was last decided about a stream, an instance or a task manager, and why. Raises UsageProblem."""
        return self.log.why(name)

    def plan_without(self, count: int) -> Plan:
        """Return the plan by which the policy would let this many task managers go now; nothing is applied. Call it
        between cycles. Raises UsageProblem: nothing was measured yet, or the policy does not choose."""
        snapshot = None if self._last is None else self._last.snapshot
        if snapshot is None:
            raise UsageProblem("task managers are chosen by a measured cycle, and there is none yet; wait for one")
        plan, _ = self._policy.decide(replace(snapshot, leaving=count), self._state)
        check_plan(plan, snapshot)
        if len([action for action in plan.actions if isinstance(action, ReleaseNode)]) != count:
            raise UsageProblem(
                f"policy {self._policy.name} does not choose the task managers that leave; name one, or choose a "
                "policy that does, such as stela",
                name=self._policy.name,
                rule="chooses",
            )
        return plan

    def interrupt(self) -> None:
        """Stop waiting for the runtime, so that the cycle under way ends soon; until `close` no cycle waits for it."""
        for call in self._calls:
            call.interrupt()

    def close(self) -> None:
        """End the workers and the recording. A later `step` starts them again."""
        for call in self._calls:
            call.close()
        self._journal.close()

    @property
    def check_s(self) -> float | None:
        """Return seconds between two calls of `stepped_rates` that the last plan asks for; None: it asks for none."""
        return None if self._last is None else self._rates.interval_s(self._last.plan, self.period_s)

    @property
    def rises(self) -> bool:
        """Return whether the last check of the input rates shows a rise."""
        return self._rates.rises

    def stepped_rates(self) -> Mapping[str, float]:
        """Return the current input rates, rows/s by source, if they differ enough from the planned rates to replan
        early; pass them to `step`. After a rise the result has all sources, after a fall those that fell. It is empty
        where no step is seen, or where the runtime has not answered by the next check. Errors of the runtime are not
        raised."""
        return self._rates.stepped(self._last, self.period_s)

    def step(self, rates: Mapping[str, float] | None = None) -> Cycle:
        """Make one cycle and return it. Errors of the runtime, the policy and subscribers are not raised.

        `rates`: rows/s by source to plan for, in place of the means over a period, which lag behind a step of the load.
        """
        journal = self._journal
        journal.cycle += 1
        cycle = Cycle(journal.cycle, self.clock.wall(), self.period_s, annotations=journal.annotations)
        began = self.clock.monotonic()
        late = self._actuator.late()
        if late is not None:
            self._warm = warm_up.told(self._warm, late, began)
        self.again_s = None
        paused = self._paused  # read once: the policy decides on it, and the plan is applied by it
        seen = self._sensor.observe(self._observe_timeout_s, paused=paused)
        if not isinstance(seen, str):
            seen = self._rates.corrected(seen, rates or {}, began, self.period_s, SETTLED_WITHIN * self._drain_s)
        found = seen if isinstance(seen, str) else self._decide(seen)
        if isinstance(found, str):
            cycle = replace(cycle, paused=paused, skipped=found)
        else:
            self._planned = found.plan
            applied = not paused and self._apply(found)
            took_s = self.clock.monotonic() - began if applied else 0.0
            cycle = replace(cycle, paused=paused, decision=found, applied=applied, applied_s=took_s)
        self._rates.decided(rates or {})
        cycle = journal.tell(cycle)
        journal.record(cycle)
        self._last = cycle
        for subscriber in self._subscribers:
            self._publish(cycle, subscriber)
        return cycle

    def _decide(self, observation: Observation) -> Decision | str:
        """Return the decision, or the reason why there is none."""
        now, policy, state = self.clock.monotonic(), self._policy, self._state
        self._warm, begun = warm_up.begin(self._warm, observation, now)
        self._journal.happened(*(each.event() for each in begun))
        snapshot = warm_up.mark(observation.snapshot, self._warm.warming)
        try:
            accuracy = current_accuracy(snapshot)
            self._warm, over = warm_up.settle(self._warm, observation, now, self.warm_up_timeout_s, accuracy)
            self._journal.happened(*(each.event() for each in over))
            if over:
                snapshot = warm_up.mark(observation.snapshot, self._warm.warming)
            started = self.clock.monotonic()
            if isinstance(policy, LearningPolicy):
                snapshot, self._memory = policy.learn(snapshot, observation.measured, self._memory)
            plan, self._state = policy.decide(snapshot, state)
            policy_ms = 1000 * (self.clock.monotonic() - started)
            check_plan(plan, snapshot)
            refused = refusals(plan, snapshot, self.runtime.supports)
            reasons = reasons_of(policy, snapshot, plan)
            settings = self._dials(plan, snapshot, observation.measured, now)
        except Exception as error:
            words = f"policy {policy.name} failed, the dials stay as they are: {describe(error)}"
            return self._journal.skipped("policy-failed", words, snapshot=snapshot_to_json(snapshot))
        self._journal.recovered("policy-failed", f"policy {policy.name} decides again")
        self._journal.refused(refused)
        return Decision(
            snapshot,
            observation.measured,
            plan,
            settings,
            policy.name,
            policy_ms,
            accuracy,
            reasons,
            refused,
            frozenset(self._by_hand),
        )

    @property
    def _drain_s(self) -> float:
        """Return within how many seconds a backlog is to be drained."""
        return self.drain_periods * self.period_s

    def _dials(self, plan: Plan, snapshot: Snapshot, measured: Measured, now: float) -> Dials:
        limits, drain_s, known = Limits.of(plan, self.period_s), self._drain_s, self._rates.falls
        falls = recent(known, now, drain_s)
        found = waiting(backlogs(snapshot, measured, limits), falls, limits, drain_s)
        self._drains = self._drains.advance(found, now, drain_s, limits)
        soon_s = self.period_s / CHECKS
        left_s = hastened(self._drains.left_s(now, self.period_s), found, falls, soon_s)
        self.again_s = soon_s if falls.keys() & left_s.keys() or unsettled(known, plan, measured) else None
        new = dials(plan, snapshot, measured, period_s=self.period_s, left_s=left_s, waiting=found)
        settings = hold(new, self._actuator.in_force, snapshot)
        return overridden(settings, self._by_hand, snapshot) if self._by_hand else settings

    def _apply(self, decision: Decision) -> bool:
        """Apply the plan; return whether it is now in force."""
        applied = self._actuator.apply(decision.accepted, decision.dials, self._apply_timeout_s)
        if applied:
            self._warm = warm_up.told(self._warm, decision.accepted, self.clock.monotonic())
        return applied

    def _publish(self, cycle: Cycle, subscriber: Subscriber) -> None:
        name = getattr(subscriber, "__qualname__", type(subscriber).__name__)
        try:
            subscriber(cycle)
        except Exception as error:
            self._journal.fault(f"subscriber-failed {name}", f"{name}, given a cycle, raised {describe(error)}")
