"""Unions that pair a column with another: found in the analyzed plan."""

from __future__ import annotations

import pytest

from qod_magics.spark.plans.plan_text import positions

ADDED = "Project [zone#1, fare#2, _weight#3, (fare#2 * 0.9) AS net#4]"
LAST = "Project [zone#5, fare#6, net#7, _weight#8]"
READ = "LogicalRDD [zone#1, fare#2, _weight#3], true"


def union(*branches: list[str]) -> str:
    """A union as Spark writes it, under a projection."""
    lines = [
        "zone: int, fare: double, _weight: double, net: double",
        "~Project [zone#1, net#4]",
        "+- ~Union false, false",
    ]
    for branch, last in zip(branches, [*[False] * (len(branches) - 1), True], strict=True):
        for depth, operator in enumerate(branch):
            before = (
                f"   {'   ' if last else ':  '}{'   ' * (depth - 1)}+- " if depth else f"   {'+' if last else ':'}- "
            )
            lines.append(f"{before}~{operator}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("branches", "expected"),
    [
        ([[ADDED, READ], [LAST, READ]], (3, 4)),
        ([[ADDED.replace("_weight", "_WEIGHT"), READ], [LAST, READ]], (3, 4)),
        ([[LAST, READ], [LAST, READ], ["Filter (fare#2 > 1.0)", ADDED, READ]], (4, 3)),
        ([["SubqueryAlias east", "View (`east`, [zone#1])", ADDED, READ], [LAST, READ]], (3, 4)),
        ([[LAST, READ], [LAST, ADDED, READ]], ()),
        ([[ADDED, READ], ["Project [zone#5, fare#6]", READ]], ()),  # one input has no such column
        ([[ADDED, READ], ["Join Inner", LAST, READ]], ()),  # unclear
        ([[ADDED, READ], ["Aggregate [zone#1], [zone#1, count(1) AS n#9L, 1.0 AS _weight#10]", READ]], ()),
        ([[LAST, READ], ["Aggregate [zone#1], [zone#1, count(1) AS n#9L, 1.0 AS _weight#10]", READ]], (4, 3)),
    ],
)
def test_a_column_at_two_positions_is_found(branches: list[list[str]], expected: tuple[int, ...]) -> None:
    assert positions(union(*branches), "_weight") == expected


def test_other_columns_do_not_matter() -> None:
    assert positions(union([ADDED, READ], [LAST, READ]), "zone") == ()
    assert positions(union([ADDED, READ], [LAST, READ]), "net") == (4, 3)
    assert positions("zone: int\n~Project [zone#1]", "zone") == ()
