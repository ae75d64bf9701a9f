from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.snapshot import Snapshot, replace
from qod_magics.core.validation import check_snapshot
from qod_magics.errors import SnapshotError
from tests.policies.snapshots import snapshots

NAMES = st.sampled_from(["t0", "t1", "t9", "t0.0", "tm0", "tm9"])
NUMBERS = st.sampled_from([0.0, 0.5, 2.0, -1.0, float("inf"), float("nan")])
FIELDS = st.one_of(
    st.tuples(st.just("task_managers"), st.just("id"), NAMES),
    st.tuples(st.just("task_managers"), st.sampled_from(["cores", "cpu"]), NUMBERS),
    st.tuples(st.just("tasks"), st.just("id"), NAMES),
    st.tuples(st.just("tasks"), st.just("upstream"), st.lists(NAMES, max_size=2).map(tuple)),
    st.tuples(st.just("tasks"), st.sampled_from(["external_rate", "min_accuracy"]), st.none() | NUMBERS),
    st.tuples(st.just("tasks"), st.just("priority"), st.none() | st.integers(0, 1)),
    st.tuples(st.just("streams"), st.sampled_from(["source", "target"]), NAMES),
    st.tuples(st.just("streams"), st.just("out_rate"), NUMBERS),
    st.tuples(st.just("instances"), st.sampled_from(["id", "task", "task_manager"]), NAMES),
    st.tuples(st.just("instances"), st.sampled_from(["in_rate", "cpu"]), NUMBERS),
)


def verdict(snapshot: Snapshot, passed: Snapshot | None = None) -> str:
    try:
        check_snapshot(snapshot, passed)
    except SnapshotError as error:
        return str(error)
    return "valid"


@given(snapshots(), st.lists(st.tuples(FIELDS, st.integers(0, 9)), max_size=2))
def test_what_passed_before_changes_no_verdict(
    good: Snapshot, changes: list[tuple[tuple[str, str, object], int]]
) -> None:
    changed = good
    for (table, name, value), number in changes:
        rows = list(getattr(changed, table))
        if rows:
            k = number % len(rows)
            rows[k] = replace(rows[k], **{name: value})
            changed = replace(changed, **{table: tuple(rows)})
    assert verdict(changed, good) == verdict(changed)
