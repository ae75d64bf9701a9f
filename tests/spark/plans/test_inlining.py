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
    """By the names in the topics: a column that a recipe computes is none of these, whatever it is called."""
    equal = "[user#3, cast(day#5 as int), id#7L, zone#21], [buyer#14, day#6, id#8L, zone#22]"
    computed = "upper(zone#2) AS zone#21"
    left = f"*(1) Project [cast(user#1L as string) AS user#3, day#5, id#7L, {computed}]"
    parsed = "*(1) Generate inline(array(from_json(StructField(a,LongType,true), cast(value#9 as string), Some(UTC))))"
    plan = f"""*(5) StreamingSymmetricHashJoin {equal}, Inner, condition = [ both = null ]
:- {left}
:  +- {parsed}, false, [user#1L, day#5, id#7L, zone#2]
:     +- StreamingRelation kafka, [key#10, value#9]
+- StreamingSymmetricHashJoin [id#8L], [id#18L], Inner, condition = [ leftOnly = null ]
   :- {parsed}, [_weight#30], false, [day#6, id#8L]
   :  +- StreamingRelation kafka, [key#11, value#9]
   +- *(2) Project [bought#4 AS buyer#14, zone#22, id#18L]
      +- {parsed}, false, [bought#4, zone#22, id#18L]
         +- StreamingRelation kafka, [key#12, value#9]
"""
    assert joined_by(f"== Physical Plan ==\n{plan}") == [{("id", "id")}, {("user", "bought"), ("id", "id")}]


def test_a_plan_that_joins_a_stream_with_itself_reads_it_once() -> None:
    exchange = "Exchange hashpartitioning(user#3L, 1), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=212]"
    parsed = "Generate inline(array(from_json(StructField(a,LongType,true), cast(value#9 as string), Some(UTC))))"
    plan = f"""StreamingSymmetricHashJoin [user#3L], [user#41L], Inner, condition = [ both = null ]
:- {exchange}
:  +- *(3) Project [user#3L, _weight#31]
:     +- {parsed}, [_weight#31], false, [user#3L, page#4L]
:        +- StreamingRelation kafka, [key#13, value#9]
+- ReusedExchange [user#41L, _weight#46], {exchange}
"""
    assert joined_by(plan) == [{("user", "user")}]
