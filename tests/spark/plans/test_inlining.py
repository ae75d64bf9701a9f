"""What plans tell of recipes, as texts of Spark's plans."""

from __future__ import annotations

import pytest

from qod_magics.spark.plans.inlining import groups_by, joined_by, keeps_one

NORMAL = "knownfloatingpointnormalized(normalizenanandzero(_weight#9)) AS _weight#9"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f"*(2) HashAggregate(keys=[id#3L, {NORMAL}], functions=[])", True),
        ("+- ObjectHashAggregate(keys=[_weight#9], functions=[collect_set(id#3L, 0, 0)])", True),
        ("StreamingDeduplicate [id#3L, _weight#9], state info [ checkpoint = <unknown>, runId = a]", True),
        ("StreamingDeduplicateWithinWatermark [id#3L, _weight#9], state info [ checkpoint = <unknown>]", True),
        ("StreamingDeduplicate [id#3L], state info [ checkpoint = <unknown>]", False),
        ("*(2) HashAggregate(keys=[window#12-T5000ms], functions=[sum(_weight#9)])", False),
        ("*(1) Project [id#3L, _weight#9]", False),
        ("*(2) HashAggregate(keys=[my_weight#9], functions=[])", False),
    ],
)
def test_a_plan_shows_by_which_columns_it_groups(line: str, found: bool) -> None:
    assert groups_by(f"== Physical Plan ==\n{line}\n", "_weight") is found


JOIN = "+- StreamingSymmetricHashJoin [id#3L], [id#4L], Inner, condition = [ leftOnly = null]"


@pytest.mark.parametrize(
    ("plan", "found"),
    [
        (f"*(3) Project [id#3L, _weight#9]\n{JOIN}", True),
        (f"{JOIN}, LeftSemi\n   +- *(1) Project [id#3L, (d#5 * 2.0) AS _weight#9]", True),
        (f"*(3) Project [id#3L, (_weight#9 * _weight#10) AS _weight#11]\n{JOIN}", False),
        ("*(3) Project [id#3L, _weight#9]\n+- *(3) BroadcastHashJoin [id#3L], [id#4L], Inner, BuildRight", False),
    ],
)
def test_a_plan_shows_whether_it_keeps_the_weight_of_one_side_of_a_join(plan: str, found: bool) -> None:
    assert keeps_one(f"== Physical Plan ==\n{plan}\n", "_weight") is found


def test_a_plan_shows_which_columns_each_join_of_streams_equates() -> None:
    join = (
        "StreamingSymmetricHashJoin [user#3, cast(day#5 as int), id#7L], [buyer#4, day#6, id#8L], Inner, condition = []"
    )
    assert joined_by(f"{join}\n:- {JOIN}\n+- BroadcastHashJoin [id#3L], [id#4L], Inner") == [
        {("user", "buyer"), ("id", "id")},
        {("id", "id")},
    ]
