"""The guard for the steps of other policies: one at a time, judged after settling, taken back if it did harm."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.plan import Fuse, Move, SetBatch, Unfuse
from qod_magics.policies.henge.utility import (
    Allowed,
    GuardState,
    Intervention,
    Parameters,
    Reverted,
    Utility,
    Waits,
    guard,
)
from tests.texts import tells

P = Parameters()
FUSE = Intervention("fuse a>b", (Fuse(("a", "b")),), (Unfuse(("a", "b")),), job="x")
BATCH = Intervention("batch of b", (SetBatch("b", 2.0),), (SetBatch("b", 1.0),))


def jobs(x: float, y: float = 10.0) -> dict[str, Utility]:
    return {"x": Utility(x, 10.0), "y": Utility(y, 10.0)}


def test_a_step_is_allowed_and_nothing_more_until_it_has_settled() -> None:
    verdict, state = guard(GuardState(), 0.0, jobs(5.0), FUSE, P)
    assert verdict == Allowed(FUSE.actions)
    verdict, same = guard(state, 59.0, jobs(1.0, 1.0), BATCH, P)
    assert isinstance(verdict, Waits)
    assert verdict.until_s == 60.0
    assert tells(verdict.why, "1 s")
    assert same == state


def test_a_step_that_helped_is_kept_and_may_be_followed_by_another_of_its_subject() -> None:
    _, state = guard(GuardState(), 0.0, jobs(5.0), FUSE, P)
    verdict, state = guard(state, 60.0, jobs(6.0), FUSE, P)
    assert verdict == Allowed(FUSE.actions)
    assert not state.skip


def test_a_step_that_did_harm_is_reverted_though_nothing_is_proposed() -> None:
    _, state = guard(GuardState(), 0.0, jobs(5.0), FUSE, P)
    verdict, state = guard(state, 60.0, jobs(5.0, 8.0), None, P)
    assert isinstance(verdict, Reverted)
    assert (verdict.subject, verdict.actions) == (FUSE.subject, FUSE.inverse)
    assert tells(verdict.why, "a>b", 15, 13)
    verdict, state = guard(state, 100.0, jobs(5.0), BATCH, P)
    assert isinstance(verdict, Waits)  # the reversion settles, too
    verdict, state = guard(state, 120.0, jobs(5.0), FUSE, P)
    assert isinstance(verdict, Waits)
    assert verdict.until_s == P.skip_s
    verdict, _ = guard(state, 120.0, jobs(5.0), BATCH, P)
    assert verdict == Allowed(BATCH.actions)


def test_a_step_that_helped_its_job_and_harmed_another_more_is_reverted_and_left_alone() -> None:
    _, state = guard(GuardState(), 0.0, jobs(5.0), FUSE, P)
    verdict, state = guard(state, 60.0, jobs(9.0, 2.0), None, P)
    assert isinstance(verdict, Reverted)
    verdict, _ = guard(state, 120.0, jobs(5.0), FUSE, P)
    assert isinstance(verdict, Waits)
    assert verdict.until_s == P.skip_s


def test_harm_is_a_drop_by_more_than_a_tenth_of_what_is_left() -> None:
    for left, is_reverted in ((10.0, False), (9.99, True)):
        _, state = guard(GuardState(), 0.0, {"x": Utility(11.0, 20.0)}, BATCH, Parameters(drop_ratio=1.1))
        verdict, _ = guard(state, 60.0, {"x": Utility(left, 20.0)}, None, P)
        assert isinstance(verdict, Reverted) is is_reverted


def test_a_step_that_did_not_help_its_job_is_kept_but_its_subject_is_left_alone_for_an_hour() -> None:
    _, state = guard(GuardState(), 0.0, jobs(5.0, 5.0), FUSE, P)
    verdict, state = guard(state, 60.0, jobs(5.4, 9.0), FUSE, P)  # another job gained
    assert isinstance(verdict, Waits)
    assert verdict.why
    verdict, _ = guard(state, 3599.0, jobs(5.4), FUSE, P)
    assert isinstance(verdict, Waits)
    verdict, _ = guard(state, 3600.0, jobs(5.4), FUSE, P)
    assert verdict == Allowed(FUSE.actions)


def test_a_step_for_all_jobs_is_judged_by_the_sum() -> None:
    _, state = guard(GuardState(), 0.0, jobs(5.0, 5.0), BATCH, P)
    verdict, _ = guard(state, 60.0, jobs(5.4, 9.0), BATCH, P)
    assert verdict == Allowed(BATCH.actions)


def test_jobs_that_came_or_went_do_not_judge_a_step() -> None:
    _, state = guard(GuardState(), 0.0, jobs(5.0), FUSE, P)
    verdict, kept = guard(state, 60.0, {"y": Utility(10.0, 10.0), "z": Utility(0.0, 90.0)}, None, P)
    assert isinstance(verdict, Waits)
    assert kept.trial is None
    verdict, kept = guard(state, 60.0, {"z": Utility(0.0, 90.0)}, None, P)
    assert isinstance(verdict, Waits)
    assert kept.skip == {}


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 10), st.integers(0, 3)), max_size=40))
def test_steps_are_apart_and_only_the_last_one_is_ever_taken_back(rounds: list[Any]) -> None:
    state, now_s, last_s, last = GuardState(), 0.0, None, None
    for passed, utility, which in rounds:
        now_s += passed
        step = Intervention(f"p{which}", (Move("i", str(which)),), (Move("i", f"not {which}"),)) if which else None
        verdict, state = guard(state, now_s, {"x": Utility(float(utility), 10.0)}, step, P)
        if verdict.actions:
            assert last_s is None or now_s - last_s >= P.settle_s
            last_s = now_s
        if isinstance(verdict, Allowed):
            assert step is not None
            assert verdict.actions == step.actions
            last = step
        if isinstance(verdict, Reverted):
            assert last is not None
            assert verdict.actions == last.inverse
            last = None
