"""The parameters of Henge, with the defaults of its authors' prototype unless said otherwise. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from qod_magics.errors import UsageProblem
from qod_magics.policies.henge.utility import knee

Order = Literal["farthest", "priority"]
Average = Literal["mean", "median"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Thresholds of Henge's decisions and the times between them. Ratios are of 1, times in seconds."""

    cap_thr: float = 0.3  #: an operator is congested above this busy fraction
    mult: float = 10.0  #: instances added for each `cap_thr` of busy fraction above `cap_thr`
    max_extra: int = 100  #: instances added to an operator in one step at most
    keep: float = 0.2  #: share of its instances that a reduction leaves an operator
    drop_ratio: float = 1.1  #: a step did harm if the utility before exceeds this multiple of that after (H-R7)
    min_gain: float = 0.05  #: a job that a step gave less, as a ratio of its maximum utility, is skipped
    skip_s: float = 3600.0  #: how long such a job is skipped, from the step on (H-R8)
    stable_rounds: int = 4  #: rounds without an action until the search has converged
    settle_s: float = 60.0  #: from one round to the next
    warm_up_s: float = 300.0  #: until the first round after task managers or jobs have changed
    observe_s: float = 10.0  #: from one reading to the next
    readings: int = 10  #: whose average is a job's juice and its latency
    average: Average = "mean"  #: a median ignores the drain after a restart
    exit_drop: float = 0.05  #: a converged search begins again if utility falls by this ratio
    exit_on_new_miss: bool = True  #: and if a job misses its target that met it (H-R6)
    order: Order = "farthest"  #: of the jobs that miss: farthest from their target first, or by utility (H-R5)

    # for Spark, and beyond the source
    juice_target: float = 1.0  #: of a query without a target of its latency (H-R11)
    juice_slack: float = 0.02  #: share of it that may be missed: counts of micro-batches vary by a batch
    congested_above: float = 0.95  #: a task manager is congested at this ratio of its cores
    hybrid: bool = False  #: a query with a target of its latency is judged by its juice, too (equation 3)
    margin: float = 1.0  #: aim at this multiple of a target of latency; below 1: act before it is missed
    jobs_per_round: int = 1  #: jobs that one round reconfigures at most
    retry_s: float | None = None  #: time from converging to a new search if a job misses its target; None: never
    bystanders: bool = True  #: blame a step for what other jobs lose even if the cluster is not congested
    curve: Callable[[float], float] = knee  #: share of its maximum utility, by how far a target is attained

    def __post_init__(self) -> None:
        """Raises UsageProblem for a value out of range."""
        for name in ("cap_thr", "observe_s", "margin"):
            if not getattr(self, name) > 0:
                raise UsageProblem(f"Henge: {name} is {getattr(self, name)!r}; give a number above 0")
        for name in ("readings", "stable_rounds", "jobs_per_round"):
            if getattr(self, name) < 1:
                raise UsageProblem(f"Henge: {name} is {getattr(self, name)!r}; give a whole number of 1 or more")
        if self.order not in ("farthest", "priority"):
            raise UsageProblem(f"Henge: there is no order {self.order!r}; give 'farthest' or 'priority'")
        if self.average not in ("mean", "median"):
            raise UsageProblem(f"Henge: there is no average {self.average!r}; give 'mean' or 'median'")


#: A variant that does better in `benchmarks/henge.py`; what each change is worth there, `--parts` prints. Latency is
#: the median, so that the drain after a restart does not judge the step: it matters most. All jobs in need are helped
#: in one round, soon after a change, with fewer instances each and before they miss their target. The others are
#: precautions: shorter times for which a job is skipped, or for which a search that ended while jobs miss is not tried
#: again, and no blame for what other jobs lose on free machines.
TUNED = Parameters(
    average="median",
    mult=4.0,
    jobs_per_round=10,
    margin=0.8,
    warm_up_s=60.0,
    skip_s=600.0,
    retry_s=600.0,
    bystanders=False,
)
