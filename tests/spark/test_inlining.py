"""What plans tell of recipes, as texts of Spark's plans."""

from __future__ import annotations

import pytest

from qod_magics.spark.inlining import groups_by

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
