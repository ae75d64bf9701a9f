"""Which physical plans keep state. The texts are Spark's own, of each kind of operator."""

from __future__ import annotations

import pytest

from qod_magics.spark.state import keeps_state


@pytest.mark.parametrize(
    "operator",
    [
        "+- StateStoreSave [k#1], state info [ checkpoint = <unknown>, runId = 1, opId = 0], Append, 0, 0, 2",
        "+- StateStoreRestore [k#1], state info [ checkpoint = <unknown>]",
        "StreamingDeduplicate [k#1], state info [ checkpoint = <unknown>]",
        "StreamingDeduplicateWithinWatermark [k#1], state info [ checkpoint = <unknown>]",
        "+- StreamingSymmetricHashJoin [k#1], [k#2], LeftOuter, condition = [ leftOnly = null]",
        "SessionWindowStateStoreSave [k#1], session_window#3",
        "FlatMapGroupsInPandasWithState f(k#1)",
        "TransformWithStateInPySpark f(k#1)",
        "StreamingGlobalLimit 5, state info [ checkpoint = <unknown>]",
    ],
)
def test_operators_with_state_are_found(operator: str) -> None:
    assert keeps_state(f"== Physical Plan ==\n{operator}\n   +- Project [k#1]")


def test_filters_projections_and_joins_with_tables_keep_none() -> None:
    operators = [
        "*(1) Project [k#1]",
        "BroadcastHashJoin [k#1], [k#2], Inner",
        ":- Filter (v#2 > 8.0)",
        "StreamingRelation",
    ]
    assert not keeps_state("\n+- ".join(operators))
