"""Stela: on-demand elasticity by effective throughput percentage (ETP).

When task managers join, their instances go to the congested tasks that move the job's throughput most; when some are to
leave, those go whose instances move it least. Source: Le Xu, dissertation, 2021, chapters 1, 2 and 7. Numbers R1 to R13
in the modules are the readings where it leaves a choice; `options.Options` has those that can be changed.

The cycle is `elastic.Elastic.decide`; each other module holds one concept. `advice` is for policies built on this one.
"""

from __future__ import annotations

from qod_magics.policies.stela.advice import Advice, new_machines, one_more
from qod_magics.policies.stela.options import Options
from qod_magics.policies.stela.policy import Stela, least_link_load, most_link_load, storm_re_deal

__all__ = [
    "Advice",
    "Options",
    "Stela",
    "least_link_load",
    "most_link_load",
    "new_machines",
    "one_more",
    "storm_re_deal",
]
