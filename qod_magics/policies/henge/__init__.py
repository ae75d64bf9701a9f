"""Henge: jobs with targets share a cluster; instances move to where they raise the sum of utilities (Xu, chapter 3).

Modules: `jobs` reads jobs and their juice from snapshots, `batches` how much of their time batches take for rows;
`utility` values and judges jobs, and judges the steps of other policies by the same rules (`utility.guard`); `machine`
decides, `policy` runs one round where it is due.

How the source is read where it says too little or contradicts itself, and the option for the other reading:

- H-R1: T counts every delivered copy on all out-edges of an operator (`jobs.operator_juice`)
- H-R2: an operator has juice only of spouts that feed it
- H-R3: juice can exceed 1
- H-R4: a target of latency is a maximum, one of throughput a minimum, and that is a minimum of juice
- H-R5: farthest from its target first; `Parameters.order = "priority"` for the prototype's order
- H-R6: a converged search wakes on a loss of 5 % or a new miss; `exit_drop`, `exit_on_new_miss`
- H-R7: harm is a drop of utility by the factor `drop_ratio`
- H-R8: a job that gained too little is skipped for `skip_s`
- H-R9: the reference of a converged search is the first utility measured after it has settled
- H-R10: 40-60 % fewer resources at the same utility are claimed without an experiment, so nothing is tested for it
- H-R11: the target of juice is 1; `juice_target`
- H-R12: machines and costs of the evaluation are not given
- H-R13: micro-batches back to back are always under way, so the busy fraction leaves out the time that batches would
  take without rows (`batches.busy_with_rows`)

"""

from __future__ import annotations

from qod_magics.policies.henge.policy import Henge
from qod_magics.policies.henge.utility import (
    TUNED,
    Allowed,
    GuardState,
    Intervention,
    Parameters,
    Reverted,
    Utility,
    Verdict,
    Waits,
    guard,
)

__all__ = [
    "TUNED",
    "Allowed",
    "GuardState",
    "Henge",
    "Intervention",
    "Parameters",
    "Reverted",
    "Utility",
    "Verdict",
    "Waits",
    "guard",
    "tuned",
]


def tuned() -> Henge:
    """Return the policy `henge-tuned`: Henge with the parameters `TUNED`."""
    return Henge(TUNED, "henge-tuned")
