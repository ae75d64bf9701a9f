"""What analyzed plans, as texts of Spark's, tell of the columns that tell rows of a result apart."""

from __future__ import annotations

import pytest

from qod_magics.spark.plans.state import key_columns

READ = """~Project [named_struct(start, at#2-T5000ms, end, at#2-T5000ms) AS window#67-T5000ms, at#2-T5000ms, zone#3L]
{0}+- ~Filter isnotnull(at#2-T5000ms)
{0}   +- ~SubqueryAlias trips
{0}      +- View (`trips`, [at#2-T5000ms, zone#3L, _weight#5])
{0}         +- ~EventTimeWatermark 1b825a6c, at#2: timestamp, 5 seconds
{0}            +- ~Generate inline(array(from_json(x, cast(value#7 as string)))), false, [at#2, zone#3L, _weight#5]"""
WINDOW = "window: struct<start:timestamp,end:timestamp>"


def chain(*operators: str) -> str:
    """A plan: its columns, and each operator over the next."""
    columns, *lines = operators
    drawn = [f"{'   ' * (i - 1)}{'+- ' if i else ''}{line}" for i, line in enumerate(lines)]
    indent = "   " * (len(lines) - 1)
    return "\n".join([columns, *drawn, f"{indent}{'+- ' if lines else ''}{READ.format('   ' * len(lines))}"])


@pytest.mark.parametrize(
    ("operators", "keys"),
    [
        (
            (
                f"{WINDOW}, zone: bigint, n: double",
                "~Aggregate [window#67-T5000ms, zone#3L], [window#67-T5000ms, zone#3L, sum(_weight#5) AS n#6]",
            ),
            ("window", "zone"),
        ),
        (
            (
                "w: struct<start:timestamp,end:timestamp>, n: bigint",
                "~Aggregate [window#67-T5000ms], [window#67-T5000ms AS w#24-T5000ms, count(1) AS n#25L]",
            ),
            ("w",),
        ),
        (
            (
                "start: timestamp, zone: bigint, n: bigint",
                "~Filter (n#16L > cast(3 as bigint))",
                "~Project [w#15-T5000ms.start AS start#23, zone#3L, n#16L]",
                "~Aggregate [window#67-T5000ms, zone#3L], [window#67-T5000ms AS w#15-T5000ms, zone#3L, n() AS n#16L]",
            ),
            ("start", "zone"),
        ),
        (
            (
                "start: timestamp, zone: bigint, half: bigint, n: bigint",
                "~Aggregate [window#67-T5000ms, zone#3L], [window#67-T5000ms.start AS start#8, zone#3L, "
                "(zone#3L / 2) AS half#9L, count(zone#3L) AS n#10L]",
            ),
            ("start", "zone"),
        ),
        (
            (
                "next: bigint, u: string, n: bigint",
                "~Aggregate [(zone#3L + cast(1 as bigint)), upper(cast(zone#3L as string))], "
                "[(zone#3L + cast(1 as bigint)) AS next#36L, upper(cast(zone#3L as string)) AS u#37, n() AS n#38L]",
            ),
            ("next", "u"),
        ),
        (("n: bigint", "~Aggregate [count(1) AS n#34L]"), ()),
        (("n: bigint", "~Aggregate [zone#3L], [count(1) AS n#34L]"), None),
        (
            (
                "half: bigint, n: bigint",
                "~Project [(zone#3L / 2) AS half#9L, n#34L]",
                "~Aggregate [zone#3L], [zone#3L, count(1) AS n#34L]",
            ),
            None,
        ),
        (("zone: bigint", "~Distinct", "~Project [zone#3L]"), None),
        (
            ("zone: bigint, n: bigint", "~Deduplicate [zone#3L]", "~Aggregate [zone#3L], [zone#3L, max(at#2) AS n#4L]"),
            None,
        ),
        (("at: timestamp, zone: bigint", "~Project [at#2-T5000ms, zone#3L]"), None),
        (("other: bigint, n: bigint", "~Aggregate [zone#3L], [zone#3L, count(1) AS n#4L]"), None),
    ],
)
def test_rows_are_told_apart_by_columns_with_all_groups(
    operators: tuple[str, ...], keys: tuple[str, ...] | None
) -> None:
    assert key_columns(chain(*operators)) == keys


@pytest.mark.parametrize("over", ["far", "counts"])
def test_common_table_expressions_are_followed(over: str) -> None:
    counted = "~Aggregate [zone#3L], [zone#3L, count(1) AS n#29L]"
    lines = [
        "z: bigint, n: bigint",
        "~WithCTE",
        ":- ~CTERelationDef 4, false",
        ":  +- ~SubqueryAlias far",
        f":     +- {READ.format(':        ')}",
        ":- ~CTERelationDef 14, false",
        ":  +- ~SubqueryAlias counts",
        f":     +- {counted}",
        ":        +- ~SubqueryAlias far",
        ":           +- ~CTERelationRef 4, true, [at#2-T5000ms, zone#3L], true, false",
        "+- ~Project [zone#3L AS z#28L, n#29L]",
    ]
    if over == "far":
        lines += [f"   +- {counted}", "      +- ~CTERelationRef 4, true, [at#2-T5000ms, zone#3L], true, false"]
    else:
        lines += ["   +- ~SubqueryAlias counts", "      +- ~CTERelationRef 14, true, [zone#3L, n#29L], true, false"]
    assert key_columns("\n".join(lines)) == ("z",)


def test_groups_of_another_task_are_known_by_the_columns_of_its_stream() -> None:
    plan = (
        "zone: bigint, twice: bigint\n~Project [zone#3L, (n#4L * 2) AS twice#9L]\n"
        "+- ~Generate inline(array(from_json(x, cast(value#7 as string)))), false, [zone#3L, n#4L]"
    )
    assert key_columns(plan, ("zone",)) == ("zone",)
    assert key_columns(plan) is None
    assert key_columns(plan, ("zone", "w")) is None
    assert key_columns(plan, ()) == ()


@pytest.mark.parametrize("text", ["", "a: int", "nothing of Spark's\nat all"])
def test_of_other_texts_nothing_is_known(text: str) -> None:
    assert key_columns(text) is None
