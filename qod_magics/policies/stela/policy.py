"""Stela and the policies that it was compared with."""

from __future__ import annotations

from qod_magics.core.plan import Plan
from qod_magics.core.reasons import Reasons
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stela.elastic import Elastic
from qod_magics.policies.stela.options import DEFAULT, Options
from qod_magics.policies.stela.reasons import StelaReasons
from qod_magics.policies.stela.strategies import ByETP, ByLinkLoad, ReDeal


class Stela(Elastic):
    """New instances for the operators that move the throughput most; machines whose work moves it least go.

    Le Xu's dissertation, 2021, chapter 2.
    """

    def __init__(self, name: str = "stela", options: Options = DEFAULT) -> None:
        super().__init__(name, ByETP(options))
        self.options = options

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return StelaReasons(snapshot, self.options, self.name)


def storm_re_deal() -> Elastic:
    """Storm's default scheduler."""
    return Elastic("storm-re-deal", ReDeal())


def least_link_load() -> Elastic:
    """Migration of the instances with the least load on their links."""
    return Elastic("least-link-load", ByLinkLoad("least"))


def most_link_load() -> Elastic:
    """Migration of the instances with the most load on their links."""
    return Elastic("most-link-load", ByLinkLoad("most"))
