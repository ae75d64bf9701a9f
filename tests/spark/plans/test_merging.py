"""Which plans, as texts of Spark's, make groups whose parts can be merged, and how."""

from __future__ import annotations

import pytest

from qod_magics.application.merging import Merge
from qod_magics.spark.plans.labels import labels
from qod_magics.spark.plans.state import key_columns, merges_of
from tests.spark.plans.test_result_keys import chain

PHYSICAL = """== Physical Plan ==
*(4) HashAggregate(keys=[window#67-T5000ms, zone#3L], functions=[count(1)])
+- StateStoreSave [window#67-T5000ms, zone#3L], state info [ opId = 0], Append, -922, -922, 2
   +- *(3) HashAggregate(keys=[window#67-T5000ms, zone#3L], functions=[merge_count(1)])
      +- StateStoreRestore [window#67-T5000ms, zone#3L], state info [ opId = 0], 2
         +- StreamingRelation rate, [timestamp#0, value#1L]
"""
DEDUPLICATED = PHYSICAL.replace("StreamingRelation", "StreamingDeduplicate [zone#3L], state info [ opId = 1]")
WINDOW = "w: struct<start:timestamp,end:timestamp>"
GROUPS = "~Aggregate [window#67-T5000ms, zone#3L], [window#67-T5000ms AS w#15-T5000ms, zone#3L, {}]"


def found(columns: str, items: str, *above: str) -> object:
    plan = chain(f"{WINDOW}, zone: bigint, {columns}", *above, GROUPS.format(items))
    return merges_of(plan, PHYSICAL)


def test_counts_sums_extremes_and_means_with_their_counts_are_merged() -> None:
    merges = found(
        "n: bigint, kept: double, low: double, high: int, some: bigint, m: double, c: bigint",
        "count(1) AS n#6L, sum(_weight#5) AS kept#7, min(fare#8) AS low#9, max(zone#3L) AS high#10, "
        "count(1) FILTER (WHERE (fare#8 > 2.0)) AS some#11L, avg(fare#8) AS m#12, count(fare#8) AS c#13L",
    )
    total = Merge("sum")
    assert merges == {
        "n": total,
        "kept": total,
        "low": Merge("min"),
        "high": Merge("max"),
        "some": total,
        "m": Merge("mean", "c"),
        "c": total,
    }


def test_columns_are_followed_through_projections() -> None:
    project = "~Project [w#15-T5000ms, zone#3L, n#6L AS rows#20L]"
    assert found("rows: bigint", "count(1) AS n#6L", project) == {"rows": Merge("sum")}


@pytest.mark.parametrize(
    ("columns", "items", "above", "named"),
    [
        ("m: double", "avg(fare#8) AS m#12", (), "add count(fare)"),
        ("u: bigint", "approx_count_distinct(zone#3L, 0.05, 0, 0) AS u#12L", (), "column u"),
        ("u: bigint", "count(distinct zone#3L) AS u#12L", (), "column u"),
        ("p: double", "percentile_approx(fare#8, 0.5, 10000, 0, 0) AS p#12", (), "column p"),
        ("r: double", "(sum(fare#8) / cast(count(1) as double)) AS r#12", (), "column r"),
        ("s: string", "max(name#8) AS s#12", (), "column s"),
        ("d: decimal(10,2)", "sum(fare#8) AS d#12", (), "column d"),
        ("n: bigint", "count(1) AS n#6L", ("~Filter (n#6L > cast(3 as bigint))",), "Filter"),
        ("n: bigint", "count(1) AS m#6L", ("~Project [w#15-T5000ms, zone#3L, (m#6L * 2) AS n#7L]",), "column n"),
    ],
)
def test_what_does_not_merge_is_named(columns: str, items: str, above: tuple[str, ...], named: str) -> None:
    why = found(columns, items, *above)
    assert isinstance(why, str)
    assert named in why


def test_of_plans_that_are_cut_nothing_is_known() -> None:
    plan = chain(f"{WINDOW}, zone: bigint, n: bigint", GROUPS.format("count(1) AS n#6L, ... 9 more fields"))
    why = merges_of(plan, PHYSICAL)
    assert isinstance(why, str)
    assert "maxToStringFields" in why
    assert key_columns(plan) is None
    assert labels(plan) is None


def test_groups_without_a_window_are_not_lent() -> None:
    """A part of one that changes no more is deleted before the others are."""
    plan = chain("zone: bigint, n: bigint", "~Aggregate [zone#3L], [zone#3L, count(1) AS n#6L]")
    why = merges_of(plan, PHYSICAL.replace("window#67-T5000ms, ", ""))
    assert isinstance(why, str)
    assert "window" in why


def test_groups_of_a_window_without_a_watermark_or_of_its_start_are_lent() -> None:
    plan = chain(f"{WINDOW}, zone: bigint, n: bigint", GROUPS.format("count(1) AS n#6L"))
    assert merges_of(plan, PHYSICAL.replace("-T5000ms", "")) == {"n": Merge("sum")}
    start = "~Aggregate [at#2-T5000ms, zone#3L], [at#2-T5000ms, zone#3L, count(1) AS n#6L]"
    plan = chain("at: timestamp, zone: bigint, n: bigint", start)
    assert merges_of(plan, PHYSICAL.replace("window#67", "at#2")) == {"n": Merge("sum")}


def test_rows_that_are_not_all_counted_by_themselves_are_not_lent() -> None:
    plan = chain(f"{WINDOW}, zone: bigint, n: bigint", GROUPS.format("count(1) AS n#6L"))
    for physical in (None, DEDUPLICATED, "== Physical Plan ==\n*(1) Project [zone#3L]\n"):
        assert isinstance(merges_of(plan, physical), str)
    single = chain(f"{WINDOW}, zone: bigint", "~Project [w#15-T5000ms, zone#3L]")
    assert isinstance(merges_of(single, PHYSICAL), str)
