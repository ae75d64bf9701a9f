from __future__ import annotations

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.policies import DEFAULT_POLICY, policy, policy_names


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_carries_the_name_it_is_asked_by(name: str) -> None:
    assert policy(name).name == name


def test_the_default_is_stream_economics() -> None:
    assert policy().name == DEFAULT_POLICY == "stream-economics"


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UsageProblem, match=r"no policy 'stream-economic'\. Did you mean 'stream-economics'\?"):
        policy("stream-economic")
