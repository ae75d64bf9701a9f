"""The part of a session that is about decisions: the controller, its policy, and what is held by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qod_magics.core.plan import edge_name
from qod_magics.session import policy_choice, waiting
from qod_magics.session.status import LATER

if TYPE_CHECKING:
    from qod_magics.controller import Controller, ControllerThread, Cycle
    from qod_magics.spark.runtime import SparkRuntime


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

    def set_policy(self, name: str) -> None:
        """Have another policy decide from the next cycle on. Raises UsageProblem: there is none of this name."""
        policy_choice.choose(self.thread, name)

    def pause_stage(self, stage: str, paused: bool = True) -> None:
        """Pause one stage of the policy, or resume it. Raises UsageProblem: the policy has no such stage."""
        policy_choice.pause_stage(self.thread, stage, paused)

    @property
    def stages(self) -> str:
        """The policy and its stages, with what each last decided, a line each."""
        return policy_choice.stages_text(self.controller)

    def override(self, name: str, d: float | None) -> str:
        """Hold the non-drop probability of a source or a stream ("from>to") by hand; None returns it to the plan, also
        where the stream is gone. Returns when that takes effect; "" for the next cycle. Raises UsageProblem: there is
        no such source or stream, or the probability lies outside 0..1."""
        held = [edge_name(edge) for edge in self.controller.overrides if d is None]
        waiting.known(list(dict.fromkeys([*self.shedders, *held])), name)
        source, _, target = name.rpartition(">")
        self.controller.override((source or None, target), d)
        return f"this takes effect {LATER}" if self.controller.paused else ""

    @property
    def shedders(self) -> list[str]:
        """The names of the shedders: sources, and streams "from>to"."""
        return self.runtime.deployment.shedders

    def annotate(self, **annotations: Any) -> None:
        """Add keys (`phase="overload"`) to the recording's lines from now on; None removes one."""
        self.controller.annotate(**annotations)

    @property
    def last(self) -> Cycle | None:
        """The last finished cycle."""
        return self.controller.last
