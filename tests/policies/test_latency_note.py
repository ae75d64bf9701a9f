"""A maximum latency that a policy does not act on is said."""

from __future__ import annotations

from math import inf

import pytest

from qod_magics.policies import BY_LATENCY, DEFAULT_POLICY, SHEDDING, latency_note


@pytest.mark.parametrize("name", sorted({DEFAULT_POLICY, *SHEDDING} - BY_LATENCY))
def test_a_policy_that_ignores_it_names_one_that_does_not(name: str) -> None:
    note = latency_note(name, 5.0)
    assert note is not None
    assert name in note
    assert any(known in note for known in BY_LATENCY)
    assert latency_note(name, None) is None
    assert latency_note(name, inf) is None


@pytest.mark.parametrize("name", [*sorted(BY_LATENCY), "a_package:policy"])
def test_a_policy_that_acts_on_it_or_is_foreign_gets_no_note(name: str) -> None:
    assert latency_note(name, 5.0) is None
