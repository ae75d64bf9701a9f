"""Which plans make each row of one record, cheaply and always the same: a reader may as well make such rows itself.

To hand a row over costs its encoding, a hop through the broker and its decoding, more than reading and parsing the
record it came from; what the plan does besides is then small.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Operators of a physical plan that keep no state, move no rows between tasks and run no Python.
NARROW = frozenset(
    {
        "CollectMetrics",
        "EventTimeWatermark",
        "Filter",
        "Generate",
        "LocalTableScan",
        "Project",
        "StreamingRelation",
        "Union",
    }
)
#: Functions that give something else when asked again, and those that loop over arrays: no telling what these cost.
_NOT_CHEAP = re.compile(r"\b(rand|randn|randstr|uniform|uuid|shuffle|monotonically_increasing_id|lambdafunction)\(")
_OPERATOR = re.compile(r"^[\s:|+\-]*(?:\*\(\d+\) )?(\w+)")
_WHOLE = {"spark.sql.debug.maxToStringFields": "100000", "spark.sql.maxPlanStringLength": "10000000"}


def is_inlinable(plan: str) -> bool:
    """Whether a physical plan, as `explain()` shows it with all its fields, is such a one."""
    lines = [line for line in plan.splitlines() if line.strip() and not line.startswith("==")]
    operators = {found[1] if (found := _OPERATOR.match(line)) else "" for line in lines}
    return bool(lines) and operators <= NARROW and _NOT_CHEAP.search(plan) is None


def plan_of(rows: DataFrame) -> str:
    """The physical plan as text, with all its fields. Raises whatever Spark says of a plan that it can't make."""
    settings = rows.sparkSession.conf
    before = {name: settings.get(name, None) for name in _WHOLE}
    try:
        for name, value in _WHOLE.items():
            settings.set(name, value)
        described: Any = rows
        if hasattr(described, "_explain_string"):  # Spark Connect
            return str(described._explain_string())
        jvm = described.sparkSession.sparkContext._jvm
        return str(jvm.PythonSQLUtils.explainString(described._jdf.queryExecution(), "simple"))
    finally:
        for name, value_before in before.items():
            if value_before is None:
                settings.unset(name)
            else:
                settings.set(name, value_before)
