from __future__ import annotations

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.policies import DEFAULT_POLICY, PAPER_POLICY, SHEDDING, policy, policy_names
from qod_magics.policies.stack import Stack
from qod_magics.policies.stream_economics import StreamEconomics


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_carries_the_name_it_is_asked_by(name: str) -> None:
    assert policy(name).name == name


def test_the_default_is_the_one_that_does_best() -> None:
    assert policy().name == DEFAULT_POLICY == "stream-economics-reactive"


def test_the_papers_is_there_by_its_own_name() -> None:
    assert policy(PAPER_POLICY).name == PAPER_POLICY == "stream-economics"
    assert type(policy(PAPER_POLICY)) is StreamEconomics


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UsageProblem, match=r"no policy 'stream-economic'\. Did you mean 'stream-economics'\?"):
        policy("stream-economic")


def test_the_policies_that_shed_are_stream_economics_its_variants_and_the_stack_around_it() -> None:
    assert {DEFAULT_POLICY, PAPER_POLICY, "auto"} <= set(SHEDDING) < set(policy_names())
    assert all(isinstance(policy(name), StreamEconomics | Stack) for name in SHEDDING)
