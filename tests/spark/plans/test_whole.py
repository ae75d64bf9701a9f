"""Which analyzed plans, as texts of Spark's, need complete mode, and what does not fit it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from qod_magics.application.streams.sink import Console, KafkaTopic, Parquet
from qod_magics.application.tasks import TaskSpec
from qod_magics.errors import ApplicationError
from qod_magics.spark.plans.job import Job, PlanFacts
from qod_magics.spark.plans.records import Whole, check_whole, may_be_whole, whole_of
from qod_magics.spark.queries.modes import against_realtime, output_modes
from tests.application.frames import stream
from tests.raising import breaks

GROUPS = "~Aggregate [zone#3L], [zone#3L, count(1) AS n#6L]"
SORT = "~Sort [n#6L DESC NULLS LAST], true"
LIMIT = ("~GlobalLimit 10", "~LocalLimit 10")
READ = ("~SubqueryAlias trips", "View (`trips`, [zone#3L])", "~StreamingRelationV2 kafka, [zone#3L]")


def plan(*operators: str) -> str:
    """A plan: each operator over the next, the last one over a stream."""
    lines = (*operators, *READ)
    return "zone: bigint\n" + "\n".join(f"{'   ' * (i - 1)}{'+- ' if i else ''}{line}" for i, line in enumerate(lines))


@pytest.mark.parametrize(
    ("operators", "clauses", "stateful"),
    [
        ((*LIMIT, SORT, GROUPS), ("ORDER BY", "LIMIT"), 1),
        ((SORT, GROUPS), ("ORDER BY",), 1),
        ((*LIMIT, GROUPS), ("LIMIT",), 1),
        (("~Offset 3", SORT, GROUPS), ("ORDER BY", "OFFSET"), 1),
        (("~Filter (n#6L > 1)", *LIMIT, SORT, "~Project [zone#3L, n#6L]", GROUPS), ("ORDER BY", "LIMIT"), 1),
        ((SORT, "~Aggregate [n#6L], [n#6L, count(1) AS c#7L]", GROUPS), ("ORDER BY",), 2),
        ((SORT, GROUPS, "~Deduplicate [zone#3L]"), ("ORDER BY",), 2),
        ((f"{GROUPS}", *LIMIT, SORT, GROUPS), ("ORDER BY", "LIMIT"), 2),
    ],
)
def test_what_sorts_or_cuts_groups_needs_complete_mode(
    operators: tuple[str, ...], clauses: tuple[str, ...], stateful: int
) -> None:
    assert whole_of(plan(*operators)) == Whole(clauses, stateful)


def test_other_plans_do_not() -> None:
    assert whole_of(plan(GROUPS)) is None
    assert whole_of(plan(*LIMIT)) is None, "the first rows of a stream"
    assert whole_of(plan(SORT)) == Whole((), 0, sorts_rows=True)
    joined = "\n".join(
        [
            "zone: bigint",
            GROUPS,
            "+- ~Join Inner, (zone#3L = zone#9L)",
            "   :- ~SubqueryAlias trips",
            "   :  +- ~StreamingRelationV2 kafka, [zone#3L]",
            "   +- GlobalLimit 3",
            "      +- LocalLimit 3",
            "         +- Sort [n#10L ASC NULLS FIRST], true",
            "            +- Aggregate [zone#9L], [zone#9L, count(1) AS n#10L]",
            "               +- Relation [zone#9L] parquet",
        ]
    )
    assert whole_of(joined) is None, "a table is sorted, not the stream"


def test_groups_of_a_common_table_expression_count() -> None:
    text = "\n".join(
        [
            "zone: bigint",
            "~WithCTE",
            ":- ~CTERelationDef 5, false",
            ":  +- ~SubqueryAlias t",
            f":     +- {GROUPS}",
            ":        +- ~StreamingRelationV2 kafka, [zone#3L]",
            f"+- {SORT}",
            "   +- ~SubqueryAlias t",
            "      +- ~CTERelationRef 5, true, [zone#3L, n#6L], true",
        ]
    )
    assert whole_of(text) == Whole(("ORDER BY",), 1)


@pytest.mark.parametrize(
    ("physical", "expected"),
    [
        (None, True),
        ("*(2) Sort [n#6L DESC NULLS LAST], true, 0", True),
        ("StreamingGlobalLimit 10, state info", True),
        ("TakeOrderedAndProject(limit=3)", True),
        ("*(1) HashAggregate(keys=[zone#3L])", False),
    ],
)
def test_a_physical_plan_tells_whether_to_look(physical: str | None, expected: bool) -> None:
    assert may_be_whole(physical) is expected


def spec(**options: Any) -> TaskSpec:
    return TaskSpec((stream("top", topic="trips", priority=1, **options),), is_query=True)


@pytest.mark.parametrize(
    ("options", "whole", "readers", "rule"),
    [
        ({"sink": Parquet("/out")}, Whole(("ORDER BY",), 1), (), "sink"),
        ({"mode": "realtime"}, Whole(("LIMIT",), 1), (), "mode"),
        ({"parallelism": 2}, Whole(("ORDER BY",), 1), (), "parallelism"),
        ({}, Whole(("ORDER BY",), 2), (), "one state"),
        ({}, Whole((), 0, sorts_rows=True), (), "groups"),
        ({}, Whole(("ORDER BY", "LIMIT"), 1), ("reader",), "own query"),
    ],
)
def test_what_does_not_fit_is_refused(
    options: dict[str, Any], whole: Whole, readers: tuple[str, ...], rule: str
) -> None:
    with pytest.raises(ApplicationError, check=breaks(rule)):
        check_whole(spec(**options), whole, readers)


@pytest.mark.parametrize("sink", [None, KafkaTopic("out"), Console()])
def test_other_sinks_take_whole_results(sink: Any) -> None:
    check_whole(spec(sink=sink), Whole(("ORDER BY", "LIMIT"), 1), ())


def test_a_whole_result_is_written_in_complete_mode_alone() -> None:
    nothing: Any = None
    job = Job("top", "top.1", 0, (), nothing, (), (), None, None, None, whole="ORDER BY")
    assert output_modes(job, realtime=False) == ("complete",)
    assert job.only_microbatch is not None
    assert "ORDER BY" in job.only_microbatch


def test_a_query_that_restarts_for_its_tables_runs_in_micro_batches() -> None:
    nothing: Any = None
    job = Job("q", "q.1", 0, (), nothing, (), (), KafkaTopic("out"), None, None, refreshes=True)
    assert "--refresh" in against_realtime(job, PlanFacts(keeps_state=False), "auto")
    assert against_realtime(replace(job, refreshes=False), PlanFacts(keeps_state=False), "auto") == ""
