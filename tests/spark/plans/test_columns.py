"""Which columns a plan reads; all, where its text does not tell. The texts are Spark's own, shortened."""

from __future__ import annotations

import pytest

from qod_magics.spark.plans.parsing import columns_read

INPUT = {"shed.t": ("a", "b", "c")}
PARSE = "Generate inline(array(from_json(StructField(a,IntegerType,true), cast(v#9 as string), Some(UTC), false)))"
OUT = "false, [a#1, b#2, c#3]"
SHED = "CollectMetrics shed.t, [count(1) AS rows#7L]"


def plan(*lines: str) -> str:
    tree = [("   " * (depth - 1) + "+- " if depth else "") + line for depth, line in enumerate(lines)]
    return "\n".join(["== Physical Plan ==", *tree, ""])


def test_the_projection_above_the_parse_says_what_is_read() -> None:
    text = plan("*(2) Project [a#1, (b#2 + 1) AS e#4]", f"{PARSE}, [_weight#5], {OUT}", "*(1) Filter (x#8)", SHED)
    assert columns_read(text, INPUT) == {"shed.t": {"a", "b"}}


def test_what_hands_rows_on_below_it_reads_too() -> None:
    text = plan(
        "HashAggregate(keys=[a#1], functions=[count(1)])",
        "*(2) Project [a#1]",
        "*(2) Filter (c#3 > 1)",
        f"{PARSE}, {OUT}",
        SHED,
    )
    assert columns_read(text, INPUT) == {"shed.t": {"a", "c"}}


def test_an_aggregation_says_what_is_read() -> None:
    text = plan("HashAggregate(keys=[a#1], functions=[partial_sum(c#3)])", f"{PARSE}, {OUT}", SHED)
    assert columns_read(text, INPUT) == {"shed.t": {"a", "c"}}


@pytest.mark.parametrize(
    "text",
    [
        plan("*(2) Project [a#1]", "Window [c#3]", f"{PARSE}, {OUT}", SHED),  # says not all that it reads
        plan("Union", f"{PARSE}, {OUT}", SHED),
        plan(f"{PARSE}, {OUT}", SHED),
        plan("*(2) Project [a#1]", f"{PARSE}, false, [a#1, b#2]", SHED),  # of another schema
        plan("*(2) Project [a#1]", f"{PARSE}, {OUT}", "Scan"),  # of an input that is not counted
        plan("*(2) Project [a#1]", f"{PARSE}, {OUT}", SHED.replace("shed.t", "shed.other")),
        plan("*(2) Project [a#1, two", f"{PARSE}, {OUT}", SHED).replace("two", "two\nlines AS e#4]"),
        plan("*(2) Project [a#1, b#2, c#3]", f"{PARSE}, {OUT}", SHED),
        plan("*(2) Project [a#1]", "Generate explode(x#1)", SHED),
        plan("*(2) Project [a#1, ... 24 more fields]", f"{PARSE}, {OUT}", SHED),  # of a server that fixes its settings
        plan("*(2) Project [a#1]", "*(2) Filter (a#1 IN (1, ... 9 more fields))", f"{PARSE}, {OUT}", SHED),
        plan("*(2) Project [a#1]", f"{PARSE}, {OUT}", f"{SHED}... 44 more characters"),
        "",
    ],
)
def test_otherwise_all_are(text: str) -> None:
    assert columns_read(text, INPUT) == {}


def test_an_input_that_is_read_twice_is_read_for_both() -> None:
    branch = [
        ":- *(1) Project [a#1]",
        f":  +- {PARSE}, {OUT}",
        f":     +- {SHED}",
        "+- *(2) Project [c#13]",
        f"   +- {PARSE}, false, [a#11, b#12, c#13]",
        f"      +- {SHED}",
    ]
    assert columns_read("\n".join(["Union", *branch]), INPUT) == {"shed.t": {"a", "c"}}
    unclear = [*branch[:3], "+- Union", *branch[4:]]
    assert columns_read("\n".join(["Union", *unclear]), INPUT) == {}
