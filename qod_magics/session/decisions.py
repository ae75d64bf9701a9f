"""The part of a session that is about decisions: the controller, its policy, and what is held by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qod_magics.core.plan import edge_name
from qod_magics.core.policy import Policy, SlicingPolicy, StagedPolicy
from qod_magics.errors import UsageProblem, nearest
from qod_magics.policies import DEFAULT_POLICY, lending_note
from qod_magics.policies import policy as policy_named
from qod_magics.recordings.reading import DISTURBANCES, policy_notes
from qod_magics.session.status import LATER

if TYPE_CHECKING:
    from qod_magics.controller import Controller, ControllerThread, Cycle
    from qod_magics.kafka.injector import Injector
    from qod_magics.session.interface import SessionInterface
    from qod_magics.spark.runtime import SparkRuntime


# --- Policy and stages ------------------------------------------------------------------------------------------------


def choose(thread: ControllerThread, name: str, parameters: Mapping[str, Any]) -> None:
    """Have another policy, or the same with other parameters, decide from the next cycle on; it begins without a
    memory. Raises UsageProblem: there is no such policy, parameter or value."""
    chosen = policy_named(name, parameters)
    thread.ask(lambda: _choose(thread.controller, chosen), "the policy is not changed")


def pause_stage(thread: ControllerThread, stage: str, paused: bool) -> None:
    """Pause a stage of the policy, or not; its memory stays. Raises UsageProblem: the policy has no such stage."""
    current = thread.controller.policy
    if not isinstance(current, StagedPolicy):
        raise UsageProblem(f"policy {current.name} has no stages: %qod policy auto has some, %qod pause pauses it all.")
    adjusted = current.pausing(stage, paused)
    words = f"stage {stage} proposes nothing from now on" if paused else f"stage {stage} proposes actions again"

    def adjust() -> None:
        thread.controller.adjust(adjusted)
        thread.controller.note("stage-paused" if paused else "stage-resumed", words, stage=stage)

    thread.ask(adjust, f"stage {stage} is not {'paused' if paused else 'resumed'}")


def stages_text(controller: Controller) -> str:
    """Return the policy, its stages, and what each last decided, a line each."""
    current, last = controller.policy, controller.last
    seen = (None, None) if last is None else (last.snapshot, last.plan)
    notes = policy_notes(current, *seen)
    lines = [f"policy {current.name}", *(f"  {each.stage}: {each.words}" for each in notes)]
    if isinstance(current, SlicingPolicy) and (rules := current.slices) is not None:
        streams = "" if isinstance(current, StagedPolicy) else f"decides about streams as {DEFAULT_POLICY}, and "
        lines.append(
            f"  it {streams}keeps slices of {rules.slice_s:g} s of the Parquet files that qod.query reads in memory"
        )
    return "\n".join(lines)


def _choose(controller: Controller, chosen: Policy) -> None:
    controller.policy = chosen
    controller.note("policy", f"policy {chosen.name} decides from now on", policy=chosen.name)


# --- Waiting ----------------------------------------------------------------------------------------------------------

Show = Callable[[str], None]

LOOK_S = 0.1


async def watch(session: SessionInterface, seconds: float, show: Show | None = None) -> None:
    """`Session.watch`."""
    deadline = time.monotonic() + seconds
    show = show or in_place()
    while session.alive and time.monotonic() < deadline:
        show(session.status())
        await asyncio.sleep(max(min(session.controller.period_s, deadline - time.monotonic()), 0.0))


async def during(
    session: SessionInterface, injector: Injector, phase: str, show: Show | None = None, look_s: float = LOOK_S
) -> None:
    """`Session.during`."""
    order = [p.name for p in injector.scenario.phases]
    known(order, phase)
    show = show or in_place()
    while injector.alive():
        now = injector.phase()
        if now == phase:
            break
        if now is not None and order.index(now) > order.index(phase):
            raise UsageProblem(
                f"phase {phase!r} is over: it is phase {now!r} now; await it before it begins",
                name=phase,
                rule="not over",
            )
        await asyncio.sleep(look_s)
    else:
        raise UsageProblem(
            f"phase {phase!r} does not come: the injector has ended; inject the scenario again",
            name=phase,
            rule="to come",
        )
    session.annotate(phase=phase)
    shown = 0.0
    while session.alive and injector.phase() == phase and injector.alive():
        if time.monotonic() - shown >= session.controller.period_s:
            shown = time.monotonic()
            show(session.status())
        await asyncio.sleep(look_s)


async def until_settled(
    session: SessionInterface, at_least_s: float, quiet_s: float, at_most_s: float, show: Show | None = None
) -> bool:
    """`Session.until_settled`."""
    show = show or in_place()
    began = quiet_since = time.monotonic()
    seen = session.last
    while session.alive and (now := time.monotonic()) - began < at_most_s:
        cycle = session.last
        if cycle is not None and cycle is not seen:
            seen = cycle
            show(session.status())
            if disturbed(cycle):
                quiet_since = now
        if now - began >= at_least_s and now - quiet_since >= quiet_s:
            return True
        await asyncio.sleep(LOOK_S)
    return False


def disturbed(cycle: Cycle) -> bool:
    """Return whether this cycle had a disturbance, an instance warming up, or no snapshot."""
    return (
        cycle.snapshot is None
        or any(event.kind in DISTURBANCES for event in cycle.events)
        or any(instance.warming_up for instance in cycle.snapshot.instances)
    )


def in_place() -> Callable[[str], None]:
    """Shows each text in place of the one before: updates one display in a notebook, prints elsewhere."""
    from IPython.core.getipython import get_ipython
    from IPython.display import Pretty, display

    if get_ipython() is None:
        return print

    handle = display(Pretty(" "), display_id=True)
    return lambda text: handle.update(Pretty(text)) if handle is not None else print(text)


def known(names: Sequence[str], name: str) -> str:
    """`name`, if it is one of `names`; otherwise raises UsageProblem with the nearest."""
    if name not in names:
        raise UsageProblem(f"there is no {name!r}.{nearest(name, names)}", name=name, rule="exists")
    return name


class Decisions:
    """What `session.Session` offers about its controller."""

    runtime: SparkRuntime
    controller: Controller
    thread: ControllerThread

    def pause(self, *, open_shedders: bool = False) -> None:
        """Recommend only: plans are made, logged and recorded, not applied. `open_shedders` also sets every non-drop
        probability to 1, so that nothing is shed. Raises BusyError when the controller does not respond."""
        self.thread.pause()
        if open_shedders:
            what = "plans are no longer applied, but the shedders are not open"
            self.thread.ask(self.controller.open_shedders, what)

    def resume(self) -> None:
        """Apply plans again."""
        self.thread.resume()

    def set_period(self, seconds: float) -> None:
        """Change the controller's period. Raises UsageProblem unless it is above 0."""
        self.thread.period_s = seconds
        self.runtime.period_s = seconds

    def set_policy(self, name: str, **parameters: Any) -> None:
        """Have another policy decide from the next cycle on, such as "henge" or "henge settle_s=15", with further
        `parameters`. Raises UsageProblem: there is none of this name, or it has no such parameter or value."""
        choose(self.thread, name, parameters)

    def pause_stage(self, stage: str, paused: bool = True) -> None:
        """Pause one stage of the policy, or resume it. Raises UsageProblem: the policy has no such stage."""
        pause_stage(self.thread, stage, paused)

    @property
    def stages(self) -> str:
        """Return the policy and its stages, with what each last decided, a line each."""
        note = lending_note(
            self.controller.policy.name, any(each.lends for each in self.runtime.deployment.specs.values())
        )
        return "\n".join([stages_text(self.controller), *([f"  {note}"] if note else [])])

    def override(self, name: str, d: float | None) -> str:
        """Hold the non-drop probability of a source or a stream ("from>to") by hand; None returns it to the plan, also
        where the stream is gone. Returns when that takes effect; "" for the next cycle. Raises UsageProblem: there is
        no such source or stream, or the probability lies outside 0..1."""
        held = [edge_name(edge) for edge in self.controller.overrides if d is None]
        known(list(dict.fromkeys([*self.shedders, *held])), name)
        source, _, target = name.rpartition(">")
        self.controller.override((source or None, target), d)
        return f"this takes effect {LATER}" if self.controller.paused else ""

    @property
    def shedders(self) -> list[str]:
        """Return the names of the shedders: sources, and streams "from>to"."""
        return self.runtime.deployment.shedders

    def annotate(self, **annotations: Any) -> None:
        """Add keys (`phase="overload"`) to the recording's lines from now on; None removes one."""
        self.controller.annotate(**annotations)

    @property
    def last(self) -> Cycle | None:
        """Return the last finished cycle."""
        return self.controller.last
