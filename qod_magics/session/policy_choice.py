"""The policy of a running session: which one decides, and which of its stages are paused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qod_magics.core.policy import Policy, StagedPolicy
from qod_magics.errors import UsageProblem
from qod_magics.policies import policy as policy_named
from qod_magics.recordings.cycles import policy_notes

if TYPE_CHECKING:
    from qod_magics.controller import Controller, ControllerThread


def choose(thread: ControllerThread, name: str) -> None:
    """Have another policy decide from the next cycle on; it begins without a memory. Raises UsageProblem without it."""
    chosen = policy_named(name)
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
    """The policy, its stages, and what each last decided, a line each."""
    current, last = controller.policy, controller.last
    seen = (None, None) if last is None else (last.snapshot, last.plan)
    notes = policy_notes(current, *seen)
    return "\n".join([f"policy {current.name}", *(f"  {each.stage}: {each.words}" for each in notes)])


def _choose(controller: Controller, chosen: Policy) -> None:
    controller.policy = chosen
    controller.note("policy", f"policy {chosen.name} decides from now on", policy=chosen.name)
