"""Which physical plans keep state, and of what. The texts are Spark's own, of each kind of operator."""

from __future__ import annotations

import pytest

from qod_magics.spark.plans.state import TaskState, chained, keeps_state, state_columns, state_signature, task_state


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


#: A count by window and key of which the greatest by window is taken; `numPartitions` and run ids are left out.
GREATEST = """== Physical Plan ==
*(7) HashAggregate(keys=[window#8-T1000ms], functions=[max(n#3L)])
+- StateStoreSave [window#8-T1000ms], state info [ opId = 0], Append, -9223372036854775808, -9223372036854775808, 2
   +- *(6) HashAggregate(keys=[window#8-T1000ms], functions=[merge_max(n#3L)])
      +- StateStoreRestore [window#8-T1000ms], state info [ opId = 0], 2
         +- *(5) HashAggregate(keys=[window#8-T1000ms], functions=[merge_max(n#3L)])
            +- Exchange hashpartitioning(window#8-T1000ms, 1), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=127]
               +- *(4) HashAggregate(keys=[window#8-T1000ms], functions=[partial_max(n#3L)])
                  +- *(4) HashAggregate(keys=[window#8-T1000ms, k#2L], functions=[count(1)])
                     +- StateStoreSave [window#8-T1000ms, k#2L], state info [ opId = 1], Append, -922, -922, 2
                        +- *(3) HashAggregate(keys=[window#8-T1000ms, k#2L], functions=[merge_count(1)])
                           +- StateStoreRestore [window#8-T1000ms, k#2L], state info [ opId = 1], 2
                              +- *(2) HashAggregate(keys=[window#8-T1000ms, k#2L], functions=[merge_count(1)])
                                 +- Exchange hashpartitioning(window#8-T1000ms, k#2L, 1), [plan_id=114]
                                    +- *(1) HashAggregate(keys=[window#8-T1000ms, k#2L], functions=[partial_count(1)])
                                       +- EventTimeWatermark timestamp#0: timestamp, 1 seconds
                                          +- StreamingRelation rate, [timestamp#0, value#1L]
"""
SESSIONS = """== Physical Plan ==
*(3) HashAggregate(keys=[session_window#205-T1000ms, k#2L], functions=[count(1)])
+- SessionWindowStateStoreSave [k#2L], session_window#205: struct<start: timestamp, end: timestamp>, Append, 1
   +- MergingSessions List(k#2L), true, 1, [session_window#205-T1000ms, k#2L], [merge_count(1)]
      +- SessionWindowStateStoreRestore [k#2L], session_window#205: struct<start: timestamp, end: timestamp>, 1
         +- *(2) Sort [k#2L ASC NULLS FIRST, session_window#205-T1000ms ASC NULLS FIRST], false, 0
            +- StreamingRelation rate, [timestamp#0, value#1L]
"""
DEDUPLICATED = """== Physical Plan ==
*(3) HashAggregate(keys=[k#2L], functions=[count(1)])
+- StateStoreSave [k#2L], state info [ opId = 0], Append, -9223372036854775808, -9223372036854775808, 2
   +- *(2) HashAggregate(keys=[k#2L], functions=[merge_count(1)])
      +- StateStoreRestore [k#2L], state info [ opId = 0], 2
         +- StreamingDeduplicate [k#2L, timestamp#0-T1000ms], state info [ opId = 1]
            +- StreamingRelation rate, [timestamp#0, value#1L]
"""
#: The latest time of each zone: the watermark is on the column, not on the groups.
LATEST = """== Physical Plan ==
*(3) HashAggregate(keys=[zone#2L], functions=[max(at#0-T1000ms)])
+- StateStoreSave [zone#2L], state info [ opId = 0], Update, -9223372036854775808, -9223372036854775808, 2
   +- *(2) HashAggregate(keys=[zone#2L], functions=[merge_max(at#0-T1000ms)])
      +- StateStoreRestore [zone#2L], state info [ opId = 0], 2
         +- StreamingRelation rate, [at#0, value#1L]
"""
SORTED = LATEST.replace("HashAggregate(keys=", "SortAggregate(key=")
PAIRS = """== Physical Plan ==
StreamingSymmetricHashJoin [k#2L], [k#9L], Inner, condition = [ both = (t#1 >= t#3) ]
:- Exchange hashpartitioning(k#2L, 1), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=1]
:  +- StreamingRelation rate, [timestamp#0, value#1L]
+- Exchange hashpartitioning(k#9L, 1), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=2]
   +- *(3) HashAggregate(keys=[window#8-T1000ms, k#9L], functions=[count(1)])
      +- StateStoreSave [window#8-T1000ms, k#9L], state info [ opId = 1], Append, -922, -922, 2
         +- StreamingRelation rate, [timestamp#0, value#1L]
"""


FOLDED = "!FlatMapGroupsInPandasWithState f(n#9L)#11, [zone#2L], [n#12L]\n+- " + LATEST.partition("\n")[2].replace(
    "\n", "\n   "
)


@pytest.mark.parametrize(
    ("plan", "state"),
    [
        (GREATEST, TaskState(keeps=True, aggregates=True, chains=True)),
        (SESSIONS, TaskState(keeps=True, aggregates=True)),
        (DEDUPLICATED, TaskState(keeps=True, aggregates=True, completes=False)),
        (PAIRS, TaskState(keeps=True, aggregates=True, chains=True)),
        (LATEST, TaskState(keeps=True, aggregates=True, completes=False)),
        (LATEST.replace("[zone#2L]", "[a[0]#2, window#8-T1000ms]"), TaskState(keeps=True, aggregates=True)),
        (SORTED, TaskState(keeps=True, aggregates=True, completes=False)),
        (FOLDED, TaskState(keeps=True, aggregates=True, chains=True, completes=False)),
        ("StreamingDeduplicate [k#1], state info [ opId = 0]\n+- StreamingRelation rate, [k#1]", TaskState(keeps=True)),
        ("*(1) Project [k#1]\n+- StreamingRelation rate, [k#1]", TaskState(keeps=False)),
    ],
    ids=[
        *("greatest", "sessions", "deduplicated", "pairs", "latest", "by window", "sorted", "folded", "duplicates"),
        "narrow",
    ],
)
def test_groups_that_operators_with_state_read_are_found(plan: str, state: TaskState) -> None:
    assert task_state(plan) == state


def test_groups_reach_operators_with_state_through_tasks_without() -> None:
    group, keep, pass_on = TaskState(True, aggregates=True), TaskState(True), TaskState(False)

    def found(**tasks: tuple[TaskState, tuple[str, ...]]) -> dict[str, str]:
        return dict(chained({n: s for n, (s, _) in tasks.items()}, {n: inputs for n, (_, inputs) in tasks.items()}))

    assert found(a=(group, ()), b=(pass_on, ("a",))) == {}
    assert found(a=(group, ()), b=(keep, ("a",))) == {"a": "b"}
    assert found(a=(group, ()), b=(pass_on, ("a",)), c=(group, ("b",)), d=(pass_on, ("c",))) == {"a": "c"}
    assert found(a=(keep, ()), b=(group, ("a",)), c=(pass_on, ("b",))) == {}
    assert found(a=(group, ()), b=(keep, ("a",)), c=(keep, ("b",))) == {"a": "b"}  # b emits each row once
    assert found(a=(TaskState(True, aggregates=True, chains=True), ())) == {"a": "a"}
    joined = found(a=(group, ()), b=(pass_on, ()), c=(keep, ("a", "b")))
    assert joined == {"a": "c"}


#: A count of rows by window, as Spark plans it over the JSON of a topic; `{}`: a filter, and what the window is of.
COUNTED = """== Physical Plan ==
*(4) HashAggregate(keys=[window#8-T60000ms], functions=[count(1)])
+- StateStoreSave [window#8-T60000ms], state info [ checkpoint = <unknown>, runId = {run}], Append, 0, 0, 2
   +- *(3) HashAggregate(keys=[window#8-T60000ms], functions=[merge_count(1)])
      +- StateStoreRestore [window#8-T60000ms], state info [ checkpoint = <unknown>, runId = {run}], 2
         +- *(2) HashAggregate(keys=[window#8-T60000ms], functions=[merge_count(1)])
            +- Exchange hashpartitioning(window#8-T60000ms, 1), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id={run}]
               +- *(1) HashAggregate(keys=[window#8-T60000ms], functions=[partial_count(1)])
                  +- *(1) Project [named_struct(start, ({of} - {width})) AS window#8-T60000ms]
                     +- *(1) Filter ({condition})
                        +- EventTimeWatermark {run:08d}-7d8f-4a5b-9c1e-2f3a4b5c6d7e, at#3: timestamp, 1 minutes
                           +- *(1) Project [{columns}]
                              +- Generate inline(array(from_json(x, cast(value#1 as string)))), false, [k#2, at#3]
                                 +- StreamingRelation kafka, [value#1]
"""


def counted(
    run: int = 1,
    of: str = "at#3-T60000ms",
    width: int = 10,
    condition: str = "isnotnull(at#3)",
    columns: str = "k#2, at#3",
) -> str:
    return COUNTED.format(run=run, of=of, width=width, condition=condition, columns=columns)


@pytest.mark.parametrize(
    "other",
    [
        counted(run=77),
        counted(condition="isnotnull(at#3) AND (k#2 > 0)"),
        counted(columns="at#3"),
        counted(columns="(k#2 + 1) AS more#9, at#3"),
        counted().replace("window#8", "window#18").replace("at#3", "at#13").replace("k#2", "k#12"),
    ],
    ids=["another run", "a filter", "a column less", "another column", "other ids"],
)
def test_a_state_means_the_same_whatever_is_filtered_and_projected(other: str) -> None:
    assert state_signature(other) == state_signature(counted()) is not None


@pytest.mark.parametrize(
    "other",
    [
        counted(width=20),
        counted(of="(at#3-T60000ms + INTERVAL 1 HOUR)"),
        counted().replace("count(1)", "sum(k#2)"),
        counted().replace("1 minutes", "5 minutes"),
        counted(columns="k#2, (at#33 + 1) AS at#3"),
        counted().replace("keys=[window#8-T60000ms]", "keys=[window#8-T60000ms, k#2]"),
    ],
    ids=["another window", "a later one", "a sum", "another delay", "other times", "another key"],
)
def test_a_state_means_something_else_by_its_keys_functions_and_times(other: str) -> None:
    assert state_signature(other) != state_signature(counted())


@pytest.mark.parametrize(
    "plan",
    [
        "*(1) Project [k#1]\n+- StreamingRelation rate, [k#1]",
        counted().replace("Filter (", "BatchEvalPython [f(k#2)#9], ("),
        counted().replace("inline(array(from_json(", "explode((("),
        PAIRS,
        SORTED.replace("SortAggregate", "FlatMapGroupsInPandas"),
        counted().replace("functions=[", "functions=[... 3 more fields, "),
    ],
    ids=["no state", "a function in Python", "a generator", "a join", "groups in Python", "cut"],
)
def test_where_the_plan_does_not_tell_nothing_is_said_of_the_state(plan: str) -> None:
    assert state_signature(plan) is None


def by(keys: str, plan: str | None = None) -> str:
    """A plan that groups by these columns and the window."""
    return (plan or counted()).replace("[window#8-T60000ms]", f"[window#8-T60000ms, {keys}]")


@pytest.mark.parametrize(
    ("plan", "columns"),
    [
        (by("k#2"), {"k"}),
        (by("k#2L").replace("[k#2, at#3]", "[k#2L, at#3-T60000ms]"), {"k"}),
        (by("k#2, at#3"), {"k", "at"}),
        (counted(), set()),
        (by("k#9", counted(columns="upper(k#2) AS k#9, at#3")), set()),
        (by("k#2") + "                  +- Generate explode(n#4), true, [n#7]\n", set()),
        (by("k#2").replace("StateStore", "SessionWindowStateStore"), set()),
        (f"StreamingDeduplicate [k#2, at#3], state info [ opId = 1]\n{by('k#2').partition(chr(10))[2]}", {"k"}),
        (f"StreamingDeduplicate [at#3], state info [ opId = 1]\n{by('k#2').partition(chr(10))[2]}", set()),
        (PAIRS, set()),
        ("*(1) Project [k#2]\n+- Generate inline(array(from_json(x))), false, [k#2]", set()),
    ],
    ids=[
        *("by window and key", "longs", "by two", "by window", "by another k", "of exploded rows", "sessions"),
        *("of single rows", "single rows otherwise", "pairs", "no state"),
    ],
)
def test_columns_that_all_state_is_kept_by_are_found(plan: str, columns: set[str]) -> None:
    assert state_columns(plan) == columns
