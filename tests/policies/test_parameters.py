"""Parameters of policies: read from text, checked, written into the policy's name, and decided by."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.policy import ParameterizedPolicy
from qod_magics.core.snapshot import Snapshot, Task, TaskManager
from qod_magics.errors import UsageProblem
from qod_magics.policies import base_name, is_policy, latency_note, parameters_of, policy, policy_names
from qod_magics.policies.henge import Henge
from qod_magics.policies.parameters import Declared, declared, text
from tests.raising import breaks

WITH_SOME = [name for name in policy_names() if parameters_of(name)]


def values(known: Declared) -> st.SearchStrategy[Any]:
    """Values that the parameter admits."""
    if known.words:
        return st.sampled_from(known.words)
    if known.kind is bool:
        return st.booleans()
    low = known.about.least if known.about.least is not None else known.about.above
    high = known.about.most
    if known.kind is int:
        found: st.SearchStrategy[Any] = st.integers(int(low or 0), None if high is None else int(high))
    else:
        found = st.floats(low, high, allow_nan=False, allow_infinity=False)
    return (found | st.none() if known.optional else found).filter(known.admits)


def test_the_policies_that_act_have_parameters() -> None:
    assert {"d-storm", "henge", "henge-tuned", "stela"} <= set(WITH_SOME)
    assert all(row.rule and row.meaning and row.value for name in WITH_SOME for row in parameters_of(name))


@pytest.mark.parametrize("name", WITH_SOME)
@given(data=st.data())
def test_a_name_with_parameters_gives_the_same_policy_again(name: str, data: st.DataObject) -> None:
    plain = policy(name)
    assert isinstance(plain, ParameterizedPolicy)
    known = declared(type(plain.parameters))
    chosen = data.draw(st.lists(st.sampled_from(sorted(known)), unique=True, max_size=3))
    wanted = {each: data.draw(values(known[each])) for each in chosen}
    made = policy(" ".join([name, *(f"{each}={text(value)}" for each, value in wanted.items())]))
    again = policy(made.name)
    assert isinstance(made, ParameterizedPolicy)
    assert isinstance(again, ParameterizedPolicy)
    assert again.name == made.name
    assert again.parameters == made.parameters
    assert all(float_of(getattr(made.parameters, each)) == value for each, value in wanted.items())
    assert type(made) is type(plain)
    assert base_name(made.name) == name
    assert is_policy(made.name)


def float_of(value: Any) -> Any:
    return float(value) if isinstance(value, Fraction) else value


def test_defaults_are_not_part_of_the_name() -> None:
    assert policy("henge settle_s=60").name == "henge"
    assert policy("henge  warm_up_s=20   settle_s=15").name == "henge settle_s=15 warm_up_s=20"
    assert policy("henge settle_s=15", {"warm_up_s": 20}).name == "henge settle_s=15 warm_up_s=20"
    assert policy("henge settle_s=15", {"settle_s": 60}).name == "henge"
    assert policy("henge-tuned retry_s=none").name == "henge-tuned retry_s=none"


@pytest.mark.parametrize(
    ("name", "rule", "parameter"),
    [
        ("henge setle_s=3", "exists", "setle_s"),
        ("henge sizing=1", "exists", "sizing"),
        ("henge curve=flat", "in range", "curve"),
        ("henge settle_s=-1", "in range", "settle_s"),
        ("henge settle_s=nan", "in range", "settle_s"),
        ("henge settle_s=inf", "in range", "settle_s"),
        ("henge settle_s=soon", "in range", "settle_s"),
        ("henge settle_s=none", "in range", "settle_s"),
        ("henge readings=1.5", "in range", "readings"),
        ("henge order=nearest", "in range", "order"),
        ("henge hybrid=2", "in range", "hybrid"),
        ("henge settle_s", "name and value", None),
        ("henge settle_s=", "name and value", None),
        ("henge settle_s=1 settle_s=1", None, "settle_s"),
        ("auto settle_s=1", "has parameters", "auto"),
        ("stream-economics x=1", "has parameters", "stream-economics"),
        ("heng settle_s=1", "exists", "heng"),
    ],
)
def test_what_is_wrong_is_one_line(name: str, rule: str | None, parameter: str | None) -> None:
    with pytest.raises(UsageProblem, check=breaks(rule, name=parameter)):
        policy(name)


def test_the_policy_decides_by_them() -> None:
    made = policy("henge warm_up_s=20 settle_s=7")
    assert isinstance(made, Henge)
    snapshot = Snapshot((TaskManager("tm1", 1.0, 0.0),), (Task("Q", (), 100.0, 1, 1.0),), (), (), at_s=100.0)
    assert made.turn(snapshot).due_s == 120.0


def test_a_note_on_latency_knows_the_policy_behind_its_parameters() -> None:
    assert latency_note("henge settle_s=15", 1.0) is None
    assert latency_note("stela mode=paths", 1.0) is not None
