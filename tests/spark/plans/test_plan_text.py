"""In which order the operators of a plan are read, and what their texts say."""

from __future__ import annotations

import pytest

from qod_magics.spark.plans.plan_text import conjuncts, definition_of, inputs_first, nodes_of


def names(plan: str) -> list[str]:
    nodes = list(nodes_of(plan))
    return [nodes[at].operator for at in inputs_first(nodes)]


def test_operators_stand_behind_what_they_read() -> None:
    assert names("Join\n:- Project\n:  +- Generate\n+- Filter\n   +- Relation") == [
        *("Relation", "Filter", "Generate", "Project", "Join")
    ]
    subquery = "Project [scalar-subquery#5 [] AS _p#6]\n:  +- Aggregate\n:     +- OneRowRelation\n+- Filter\n   +- Scan"
    assert names(subquery) == ["Scan", "Filter", "OneRowRelation", "Aggregate", "Project"]
    assert names("") == []


def test_common_table_expressions_are_read_before_those_that_refer_to_them() -> None:
    plan = (
        "WithCTE\n:- CTERelationDef 0, false\n:  +- Generate\n:- CTERelationDef 11, false\n:  +- Aggregate\n"
        ":     +- CTERelationRef 0, true, [a#1]\n+- Project\n   +- CTERelationRef 11, true, [n#2]"
    )
    first, second = ["Generate", "CTERelationDef"], ["CTERelationRef", "Aggregate", "CTERelationDef"]
    assert names(plan) == [*first, *second, "CTERelationRef", "Project", "WithCTE"]
    nodes = list(nodes_of(plan))
    assert [definition_of(nodes, node) for node in nodes if node.operator == "CTERelationRef"] == [1, 3]


def test_operators_are_read_whatever_spark_marks_them_with() -> None:
    """As one over a stream, as one whose input lacks columns that it computes, or with the number of its stage."""
    plan = "!FlatMapGroupsInPandasWithState f(a#1)#2, [a#1]\n+- *(2) !Sort [a#1]\n   +- ~Project [a#1]\n      +- Scan"
    assert [(node.operator, node.depth, node.streams) for node in nodes_of(plan)] == [
        *(("FlatMapGroupsInPandasWithState", 0, False), ("Sort", 3, False), ("Project", 6, True), ("Scan", 9, False))
    ]


@pytest.mark.parametrize(
    ("condition", "parts"),
    [
        ("(a#1 = b#2)", ["(a#1 = b#2)"]),
        ("(((a#1 = b#2) AND (c#3 < d#4)) AND NOT (e#5 = f#6))", ["(a#1 = b#2)", "(c#3 < d#4)", "NOT (e#5 = f#6)"]),
        ("((a#1 = b#2) OR (c#3 = d#4))", ["((a#1 = b#2) OR (c#3 = d#4))"]),
        ("NOT ((a#1 = b#2) AND (c#3 = d#4))", ["NOT ((a#1 = b#2) AND (c#3 = d#4))"]),
        ("((a#1 = b#2) AND c#3) IN (false)", ["((a#1 = b#2) AND c#3) IN (false)"]),
        ("", [""]),
    ],
)
def test_conditions_that_all_have_to_hold_are_told_apart(condition: str, parts: list[str]) -> None:
    assert conjuncts(condition) == parts
