"""The reasons of Henge: state of the search, utility, and what each job has of its own. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qod_magics.core.reasons import SheddingNothing
from qod_magics.core.wording import listed
from qod_magics.policies.henge.machine import (
    Converged,
    Hold,
    Reconfiguration,
    Reduction,
    Reversion,
    Stable,
    State,
)
from qod_magics.policies.henge.parameters import Parameters
from qod_magics.policies.henge.turn import Turn
from qod_magics.policies.henge.utility import satisfaction


class HengeReasons(SheddingNothing):
    """The `core.reasons.Reasons` of a plan of Henge."""

    def __init__(self, turn: Turn, parameters: Parameters, policy: str) -> None:
        super().__init__(policy)
        self.turn = turn
        self.parameters = parameters

    def __repr__(self) -> str:
        return f"reasons of Henge for {len(self.turn.jobs)} jobs"

    def task(self, id: str) -> Sequence[str]:
        """See `core.reasons.Reasons`: the job, its utility and what it was measured by; the task's busy fraction."""
        job = next(name for name, tasks in self.turn.parts.items() if id in tasks)
        return [self._job(job), self._operator(job, id), self._search(), *self._skipped(job)]

    def task_manager(self, id: str) -> Sequence[str]:
        """See `core.reasons.Reasons`: utility of the cluster, state and step."""
        congested = ["half of the task managers or more are congested"] if self.turn.congested else []
        return [self._search(), *congested]

    def numbers(self, id: str) -> Mapping[str, float]:
        """See `core.reasons.Reasons`: utility W, its maximum W*, and their ratio in %."""
        each = self.turn.utilities.values()
        return {
            "utility": sum(job.current for job in each),
            "most_utility": sum(job.most for job in each),
            "satisfaction": satisfaction(each),
        }

    def _search(self) -> str:
        numbers = self.numbers("")
        state = "converged" if self.turn.known.machine.state is State.CONVERGED else "searching"
        of = f"utility {numbers['utility']:.4g} of {numbers['most_utility']:.4g} ({numbers['satisfaction']:.1f} %)"
        return f"Henge is {state}, {of}: {self._step()}"

    def _step(self) -> str:
        match self.turn.step:
            case Reconfiguration(changes):
                return f"reconfiguration of {listed(list(changes))}"
            case Reduction(changes):
                return f"reduction of {listed(list(changes))}"
            case Reversion(utility):
                return f"reversion to the configuration that had a utility of {utility:.4g}"
            case Stable(rounds):
                return f"nothing to do, round {rounds} of {self.parameters.stable_rounds} until it has converged"
            case Converged():
                return "nothing to do, so the search has converged"
            case Hold():
                return "it holds until utility falls or a job misses its target"
        return self.turn.waits

    def _job(self, job: str) -> str:
        turn, utility = self.turn, self.turn.utilities[job]
        found = [
            f"{name} has a latency of {turn.known.latency_s[name]:.3g} s"
            for name in turn.parts[job]
            if name in turn.known.latency_s
        ]
        juice = turn.known.juice.get(job)
        words = [f"juice {juice:.3f}"] if juice is not None else ["no juice measured yet"]
        return f"job {job} has a utility of {utility.current:.3g} of {utility.most:.3g}; " + ", ".join(words + found)

    def _operator(self, job: str, id: str) -> str:
        operator = self.turn.jobs[job].operators[id]
        verb = "congested" if operator.busy > self.parameters.cap_thr else "not congested"
        return f"{id} has {operator.instances} of {operator.most} instances, busy {operator.busy:.2f}: {verb}"

    def _skipped(self, job: str) -> list[str]:
        until = self.turn.machine.skip.get(job)
        if until is None:
            return []
        return [f"its last step gave {job} too little: it is skipped for {until - self.turn.known.now_s:.0f} s more"]
