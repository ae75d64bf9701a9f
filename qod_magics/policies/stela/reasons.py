"""The reasons of Stela: ETPs of tasks and task managers, by the rates of one snapshot. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from qod_magics.core.reasons import SheddingNothing
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stela.congestion import congested
from qod_magics.policies.stela.elastic import Deployment
from qod_magics.policies.stela.etp import etps
from qod_magics.policies.stela.job import Job, Rate
from qod_magics.policies.stela.options import Options
from qod_magics.policies.stela.samples import job_of
from qod_magics.policies.stela.scale_in import score


class StelaReasons(SheddingNothing):
    """The `core.reasons.Reasons` of a plan of Stela.

    The actions of the plan carry those that they were chosen for, by mean rates; here are those of the snapshot alone.
    """

    def __init__(self, snapshot: Snapshot, options: Options, policy: str) -> None:
        super().__init__(policy)
        self.snapshot = snapshot
        self.options = options

    def __repr__(self) -> str:
        return f"reasons of a plan for {len(self.snapshot.tasks)} tasks"

    def task(self, id: str) -> Sequence[str]:
        """See `core.reasons.Reasons`: its ETP, and whether it is congested."""
        job = self._job
        flow = f"input {round(job.input(id))} rows/s, {round(job.processed[id])} of them read"
        state = "congested" if id in self._congested else "not congested"
        return [f"ETP {float(self._etp[id]):.0%} of {round(job.throughput)} rows/s", f"{state}: {flow}"]

    def task_manager(self, id: str) -> Sequence[str]:
        """See `core.reasons.Reasons`: its ETPSum and its place among the others, the lowest of which goes first."""
        sums = self._sums
        lower = sum(1 for other in sums.values() if other < sums[id])
        return [f"ETPSum {float(sums[id]):.2f}, lower on {lower} of {len(sums) - 1} others"]

    def numbers(self, id: str) -> Mapping[str, float]:
        """See `core.reasons.Reasons`: ETPSum of a task manager."""
        return {"etp_sum": float(self._sums[id])}

    @cached_property
    def _job(self) -> Job:
        return job_of(self.snapshot)

    @cached_property
    def _congested(self) -> frozenset[str]:
        return frozenset(congested(self._job, self.options))

    @cached_property
    def _etp(self) -> Mapping[str, Rate]:
        return etps(self._job, self._congested, self.options.mode)

    @cached_property
    def _sums(self) -> Mapping[str, Rate]:
        names = [manager.id for manager in self.snapshot.task_managers]
        placement = Deployment.of(self.snapshot, self._job, names).placement
        return {machine: score(hosted, self._etp) for machine, hosted in placement.items()}
