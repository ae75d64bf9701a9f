"""What plans tell of recipes, as texts of Spark's plans."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from qod_magics.application.recipes.building import raise_unless_connection
from qod_magics.errors import TaskManagerError
from qod_magics.spark.plans.inlining import (
    groups_by,
    is_inlinable,
    joined_by,
    keeps_one,
    plan_of,
    runs_python,
    sums_weights,
    untruncated,
)
from qod_magics.spark.servers.connection import begin
from tests.raising import breaks

NORMAL = "knownfloatingpointnormalized(normalizenanandzero(_weight#9)) AS _weight#9"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f"*(2) HashAggregate(keys=[id#3L, {NORMAL}], functions=[])", True),
        ("+- ObjectHashAggregate(keys=[_weight#9], functions=[collect_set(id#3L, 0, 0)])", True),
        ("+- SortAggregate(key=[_weight#9], functions=[max(name#4)])", True),
        ("StreamingDeduplicate [id#3L, _weight#9], state info [ checkpoint = <unknown>, runId = a]", True),
        ("StreamingDeduplicateWithinWatermark [id#3L, _weight#9], state info [ checkpoint = <unknown>]", True),
        ("StreamingDeduplicate [id#3L], state info [ checkpoint = <unknown>]", False),
        ("*(2) HashAggregate(keys=[window#12-T5000ms], functions=[sum(_weight#9)])", False),
        ("*(1) Project [id#3L, _weight#9]", False),
        ("*(2) HashAggregate(keys=[_WEIGHT#9], functions=[])", True),
        ("*(2) HashAggregate(keys=[my_weight#9], functions=[])", False),
    ],
)
def test_a_plan_shows_by_which_columns_it_groups(line: str, found: bool) -> None:
    assert groups_by(f"== Physical Plan ==\n{line}\n", "_weight") is found


def stacked(*operators: str) -> str:
    """A plan of operators, each above its input."""
    return "\n".join(f"{'   ' * (n - 1)}{'+- ' * (n > 0)}{operator}" for n, operator in enumerate(operators))


JOIN = "StreamingSymmetricHashJoin [id#3L], [id#4L], Inner, condition = [ leftOnly = null]"
ONE = ("*(3) Project [id#3L, at#2, _weight#9]", JOIN)
PAIRS = ("*(3) Project [id#3L, at#2, (_weight#9 * _weight#10) AS _weight#11]", JOIN)
PYTHON = "BatchEvalPython [score(id#3L)#5], [pythonUDF0#13]"
WATERMARK = "EventTimeWatermark 1, at#2: timestamp, 1 seconds"
ONCE = "StreamingDeduplicate [id#3L], state info [ checkpoint = <unknown> ]"
OTHER = "Union\n:- *(1) Project [id#6L, _weight#7]\n:  +- Scan\n"


@pytest.mark.parametrize(
    ("plan", "found"),
    [
        (stacked(*ONE), True),
        (f"{JOIN}, LeftSemi\n+- *(1) Project [id#3L, (d#5 * 2.0) AS _weight#9]", True),
        (stacked(*PAIRS), False),
        (stacked("*(4) Project [id#3L, n#12, _WEIGHT#9]", PYTHON, *ONE), True),
        (stacked("*(4) Project [id#3L, n#12, _weight#11]", PYTHON, *PAIRS).replace("_weight", "_WEIGHT"), False),
        ("*(3) Project [id#3L, _weight#9]\n+- *(3) BroadcastHashJoin [id#3L], [id#4L], Inner, BuildRight", False),
        (stacked("*(4) Project [id#3L, _weight#9, length(id#3L) AS n#12]", *ONE), True),
        (stacked("*(4) Project [id#3L, pythonUDF0#13 AS n#12, _weight#11]", PYTHON, *PAIRS), False),
        (stacked("*(4) Project [id#3L, pythonUDF0#13 AS n#12, _weight#9]", PYTHON, *ONE), True),
        (stacked("*(4) Project [id#3L, pythonUDF0#13 AS _weight#12]", PYTHON, *ONE), False),
        (stacked(WATERMARK, *PAIRS), False),
        (stacked(WATERMARK, *ONE), True),
        (stacked(ONCE, "Exchange hashpartitioning(id#3L, 1)", *PAIRS), False),
        (stacked(ONCE, "Exchange hashpartitioning(id#3L, 1)", *ONE), True),
        (stacked("*(5) HashAggregate(keys=[id#3L], functions=[sum(_weight#11)])", *PAIRS), False),
        (stacked("*(5) HashAggregate(keys=[id#3L], functions=[sum(_weight#9)])", *ONE), True),
        (stacked("*(5) Project [id#3L, w#14 AS _weight#15]", "*(4) Project [id#3L, _weight#9 AS w#14]", JOIN), True),
        (OTHER + stacked("", *PAIRS), False),
        (OTHER + stacked("", *ONE), True),
    ],
)
def test_a_plan_shows_whether_it_keeps_the_weight_of_one_side_of_a_join(plan: str, found: bool) -> None:
    assert keeps_one(f"== Physical Plan ==\n{plan}\n", "_weight") is found


@pytest.mark.parametrize(
    ("functions", "found"),
    [("sum(_weight#9), count(1)", True), ("partial_sum(x#2), sum(_WEIGHT#9)", True), ("sum(net_weight#9)", False)],
)
def test_a_plan_shows_whether_it_sums_weights_up(functions: str, found: bool) -> None:
    assert sums_weights(f"*(2) HashAggregate(keys=[id#3L], functions=[{functions}])\n+- Scan") is found


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


@pytest.mark.parametrize(
    ("columns", "inlinable"), [("fare#1", True), ("rand(1) AS r#2", False), ("fare#1, ... 9 more fields", False)]
)
def test_a_plan_is_inlined_that_shows_that_it_is_cheap(columns: str, inlinable: bool) -> None:
    assert (
        is_inlinable(f"== Physical Plan ==\n*(1) Project [{columns}]\n+- StreamingRelation kafka, [a#0]") is inlinable
    )


LENGTHS = {"spark.sql.debug.maxToStringFields": "8"}  #: of a session; the other setting is Spark's default


class Session:
    """A session whose threads share its settings."""

    def __init__(self) -> None:
        self.settings = dict(LENGTHS)
        self.conf = self
        self.refuses: set[str] = set()  #: values that it does not take, as if the connection broke

    def get(self, name: str, default: str | None) -> str | None:
        return self.settings.get(name, default)

    def set(self, name: str, value: str) -> None:
        if value in self.refuses:
            raise ConnectionError("nobody answers")
        self.settings[name] = value

    def unset(self, name: str) -> None:
        self.settings.pop(name, None)


class Rows:
    """A DataFrame that is explained once its gate is open, as the settings are then."""

    def __init__(self, session: Session) -> None:
        self.sparkSession = session
        self.asked, self.gate = threading.Event(), threading.Event()

    def _explain_string(self, extended: bool) -> str:
        self.asked.set()
        assert self.gate.wait(30)
        return "cut" if self.sparkSession.settings == LENGTHS else "whole"


def plan(rows: Rows) -> str:
    return plan_of(rows)  # type: ignore[arg-type]


def test_plans_that_two_threads_ask_for_are_whole_and_leave_no_setting_behind() -> None:
    session = Session()
    first, second = Rows(session), Rows(session)
    told = begin(lambda: plan(first), "first")
    assert first.asked.wait(30)
    told_next = begin(lambda: plan(second), "second")
    second.asked.wait(0.2)  # it would have been asked by now
    first.gate.set()
    assert told.result(30) == "whole"
    second.gate.set()
    assert told_next.result(30) == "whole"
    assert session.settings == LENGTHS


def test_plans_of_two_sessions_are_told_side_by_side() -> None:
    one, other = Rows(Session()), Rows(Session())
    told = begin(lambda: plan(one), "one")
    assert one.asked.wait(30)
    other.gate.set()
    assert plan(other) == "whole"
    one.gate.set()
    assert told.result(30) == "whole"


def test_settings_that_could_not_be_put_back_are_with_the_next_plan() -> None:
    session = Session()
    rows = Rows(session)
    rows.gate.set()
    session.refuses = {"8"}
    with pytest.raises(ConnectionError):
        plan(rows)
    assert session.settings != LENGTHS
    session.refuses = set()
    assert plan(rows) == "whole"
    assert session.settings == LENGTHS


def test_a_server_that_fixes_its_settings_tells_plans_as_they_say() -> None:
    session = Session()
    rows = Rows(session)
    rows.gate.set()
    session.refuses = {"100000", "10000000"}
    assert plan(rows) == "cut"
    assert session.settings == LENGTHS


def test_a_plan_does_not_wait_for_ever_for_one_that_is_never_told() -> None:
    session: Any = Session()
    hanging = Rows(session)
    told = begin(lambda: plan(hanging), "hanging")
    assert hanging.asked.wait(30)
    with pytest.raises(TaskManagerError, check=breaks("answers", value=0.05)) as raised, untruncated(session, 0.05):
        pytest.fail("the other one has the settings")
    with pytest.raises(TaskManagerError):  # it says nothing of the recipe
        raise_unless_connection(raised.value)
    hanging.gate.set()
    assert told.result(30) == "whole"
    assert session.settings == LENGTHS


@pytest.mark.parametrize(
    ("operator", "python"),
    [
        ("*(2) Project [id#3L, pythonUDF0#9 AS y#5]\n+- BatchEvalPython [f(id#3L)#4], [pythonUDF0#9]", True),
        ("ArrowEvalPython [busy(x#3)#4], [pythonUDF0#9], 200", True),
        ("MapInPandas f(id#3L)#4, [id#5L], false", True),
        ("PythonMapInArrow f(id#3L)#4, [id#5L], false", True),
        ("*(1) Project [id#3L]\n+- MapInArrow f(id#3L)#4, [id#5L], false", True),
        ("FlatMapGroupsInPandas [id#3L], f(id#3L)#4, [n#5L]", True),
        ("!FlatMapGroupsInPandasWithState f(id#3L)#4, [id#3L], [n#5L]", True),
        ("TransformWithStateInPySpark f(id#3L)#4, [id#3L], [n#5L]", True),
        ("!TransformWithStateInPandas f(id#3L)#4, [id#3L], [n#5L]", True),
        ("*(1) Project [upper(Pandas#3) AS PythonMapInArrow#5]\n+- StreamingRelation kafka, [Pandas#3]", False),
        ("StreamingDeduplicateWithinWatermark [id#3L], state info [ checkpoint = <unknown>]", False),
    ],
)
def test_a_plan_shows_whether_python_runs_in_it(operator: str, python: bool) -> None:
    assert runs_python(f"== Physical Plan ==\n{operator}\n") is python
