"""Stela: on-demand elasticity by effective throughput percentage (ETP).

When task managers join, their instances go to the congested tasks that move the job's throughput most; when some are to
leave, those go whose instances move it least. Source: Le Xu, dissertation, 2021, chapters 1, 2 and 7.

The cycle is `policy.Elastic.decide`. `job` makes operators with rates of snapshots and ranks them, `scaling` adds and
removes instances and turns that into actions. `job.one_more` is for policies that decide themselves when to scale.
`benchmarks.evaluation.convergence` has what the source's evaluation models and measures.

Where the source contradicts itself or leaves a choice, the modules name the reading:

- R1: a sink counts once, as in Eq. 2.1; Algorithm 2.1 counts it once for each path (`Options.mode`)
- R2: where nothing congested has room, sources take turns, and the loop goes on
- R3: N instances for each new machine, rounded down, at least 1
- R4: only congested operators are candidates
- R5: a source is congested if its offered rate is known and exceeds what it reads
- R6: rates are means of the last 20 samples
- R7: Algorithm 2.3 with scores computed again after each removal, and instances distributed from the lowest score up
- R8: what settled means (`evaluation.convergence_s`)
- R9: of equal ETPs, the first declared
- R10: a projection raises the input of children, not their processing rate (`Options.projection`)
- R11: a projection is not capped by the input (`Options.cap_at_input`)
- R12: candidates are ranked by ETP alone, and none exceeds its maximum of instances
- R13: "expected" and "effective" throughput percentage are the same
- R14 to R18: figures of the source that contradict one another, or its proportional model
"""

from __future__ import annotations

from qod_magics.policies.stela.job import Advice, Options, one_more
from qod_magics.policies.stela.policy import Stela, least_link_load, most_link_load, storm_re_deal

__all__ = [
    "Advice",
    "Options",
    "Stela",
    "least_link_load",
    "most_link_load",
    "one_more",
    "storm_re_deal",
]
