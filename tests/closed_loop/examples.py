"""How many examples a property is tried on, and what is left of one that fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from qod_magics.simulator import Simulation
from qod_magics.testing.runs import replay

Check = Callable[[Simulation], list[str]]

LITERAL, BEST, AUTO = "stream-economics", "stream-economics-reactive", "auto"
_SOME = [pytest.mark.closed_loop, pytest.mark.timeout(900)]
_MANY = [*_SOME, pytest.mark.slow]
#: The same simulations are drawn each time, whatever becomes of the code around them.
SEED = 20161121

#: The paper's policy is tried on a few in each run of the pure tests; the one that does best and `auto` on some in
#: `make test`; all on many in `make test-all`.
EXAMPLES = pytest.mark.parametrize(
    ("examples", "policy"),
    [
        pytest.param(3, LITERAL, id="few"),
        pytest.param(500, LITERAL, id="many", marks=_MANY),
        pytest.param(3, BEST, id="some-best", marks=_SOME),
        pytest.param(500, BEST, id="many-best", marks=_MANY),
        pytest.param(2, AUTO, id="some-auto", marks=_SOME),
        pytest.param(500, AUTO, id="many-auto", marks=_MANY),
    ],
)
#: The same of what only the best is claimed to do.
EXAMPLES_OF_BEST = pytest.mark.parametrize(
    "examples", [pytest.param(3, id="few"), pytest.param(500, id="many", marks=_MANY)]
)


def corners(names: str, *quick: tuple[Any, ...], others: Iterable[tuple[Any, ...]]) -> pytest.MarkDecorator:
    """Try these cases in each run of the pure tests, and the others of a grid in `make test-live`."""
    rest = [pytest.param(*case, marks=pytest.mark.grid) for case in others if case not in quick]
    return pytest.mark.parametrize(names.split(), [*quick, *rest])


def for_all(
    simulations: st.SearchStrategy[Simulation],
    examples: int,
    check: Check,
    name: str,
    policy: str = LITERAL,
) -> None:
    """Fail unless `check` has nothing to say of any simulation with this policy; leave the smallest that it complains
    of in a file. What `check` itself asserts fails in any case.

    The same simulations each time, but for the profile `thorough`.
    """
    thorough = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"

    @settings(
        max_examples=examples,
        deadline=None,
        database=settings.default.database if thorough else None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    @given(simulations)
    def holds(simulation: Simulation) -> None:
        simulation = replace(simulation, policy=policy)
        complaints = check(simulation)
        assert not complaints, "\n".join([*complaints, f"see for yourself: {replay(simulation, name)}"])

    (holds if thorough else seed(SEED)(holds))()
