"""The dispatchers by name."""

from __future__ import annotations

import pytest

from qod_magics.core.engines import Topology
from qod_magics.errors import UsageProblem
from qod_magics.policies.dirigo import CentralRandom
from qod_magics.policies.dirigo.base import Dirigo
from qod_magics.policies.of_engines import dispatcher, dispatcher_names

MINE = [name for name in dispatcher_names() if name.startswith("dirigo-")]


@pytest.mark.parametrize("name", [*MINE, "central-random"])
def test_each_call_makes_a_new_one(name: str) -> None:
    one, other = dispatcher(name), dispatcher(name)
    assert isinstance(one, Dirigo)
    assert one is not other
    assert one.name == name
    one.begin(Topology((), (0, 1)))
    one.check()


def test_all_policies_have_a_name() -> None:
    assert len(MINE) == 8


def test_a_central_scheduler_needs_others() -> None:
    with pytest.raises(UsageProblem, match="two or more"):
        CentralRandom().begin(Topology((), (0,)))
