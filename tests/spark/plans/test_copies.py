"""Which columns of a plan are those of its topics, whatever they are called."""

from __future__ import annotations

import pytest

from qod_magics.spark.plans.plan_text import Copies, inputs_first, kept_columns, nodes_of

PARSED = "~Generate inline(array(from_json(StructField(a,LongType,true), cast(value#7 as string), Some(UTC))))"
TOPIC = f"{PARSED}, false, [user#1L, page#2L]"
OTHER = f"{PARSED}, false, [user#11L, page#12L]"


@pytest.mark.parametrize(
    ("columns", "operator", "kept"),
    [
        ("user, page", "Project [user#1L, page#2L]", {"user", "page"}),
        ("USER, Page", "Project [USER#1L, Page#2L]", {"USER", "Page"}),  # as the query spells them
        ("user", "Project [cast(user#1L as string) AS user#9]", {"user"}),
        ("user", "Project [cast(user#1L as date) AS user#9]", set()),
        ("user", "Project [cast(user#1L as int) AS user#9]", set()),
        ("user", "Project [cast(user#1L as double) AS user#9]", set()),
        ("user", "Project [cast(user#1L as bigint) AS user#9L]", {"user"}),
        ("user", "Project [(user#1L % cast(7 as bigint)) AS user#9L]", set()),
        ("user, page", "Project [page#2L AS user#9L, user#1L AS page#8L]", set()),
        ("who, page", "Project [user#1L AS who#9L, page#2L]", {"page"}),
        ("user, n", "Aggregate [user#1L], [user#1L, count(1) AS n#9L]", {"user"}),
        ("user, n", "Aggregate [page#2L], [first(user#1L, false) AS user#9L, count(1) AS n#8L]", set()),
        ("user", "MapInPandas <lambda>(user#1L), [user#9L], false", set()),
    ],
)
def test_a_column_is_kept_as_it_is_or_cast(columns: str, operator: str, kept: set[str]) -> None:
    header = ", ".join(f"{name}: bigint" for name in columns.split(", "))
    assert kept_columns(f"{header}\n~Filter (1 = 1)\n+- ~{operator}\n   +- {TOPIC}") == kept


@pytest.mark.parametrize(
    ("left", "right", "kept"),
    [
        ("user#1L, page#2L", "user#11L, page#12L", {"user", "page"}),
        ("user#1L, page#2L", "page#12L, user#11L", set()),
        ("user#1L, page#2L", "user#11L, upper(x#13) AS page#14", {"user"}),
    ],
)
def test_a_column_of_a_union_is_kept_where_it_is_in_each_branch(left: str, right: str, kept: set[str]) -> None:
    plan = f"~Union false, false\n:- ~Project [{left}]\n:  +- {TOPIC}\n+- ~Project [{right}]\n   +- {OTHER}"
    assert kept_columns(f"user: bigint, page: bigint\n{plan}") == kept
    unknown = plan.replace("~Project", "~Expand [[]],")
    assert kept_columns(f"user: bigint, page: bigint\n~Project [user#1L, page#2L]\n+- {unknown}") == set()


def test_a_join_has_the_columns_of_both_sides() -> None:
    join = f"Inner, (user#1L = user#11L)\n:- ~SubqueryAlias a\n:  +- ~Project [user#1L]\n:     +- {TOPIC}\n"
    join += f"+- ~Project [page#12L, user#11L AS u#13L]\n   +- {OTHER}"
    assert kept_columns(f"user: bigint, page: bigint, u: bigint\n~Join {join}") == {"user", "page"}
    assert kept_columns(f"user: bigint\n~Join {join.replace('Inner', 'LeftSemi')}") == {"user"}


def test_records_as_they_are_have_columns_too() -> None:
    raw = "~StreamingRelationV2 org.Provider@7d, kafka, org.Table@1, [assign={}], [key#7, value#8, topic#9]"
    assert kept_columns(f"key: binary\n~Project [key#7]\n+- {raw}") == {"key"}
    copies, nodes = Copies(), list(nodes_of(f"~Project [cast(key#7 as string) AS user#10]\n+- {raw}"))
    for at in inputs_first(nodes):
        copies.follow(nodes, at)
    assert copies.name("user#10") == "key"
    assert copies.names(["user#10", "cast(value#8 as string)", "upper(value#8)", "other#11"]) == {"key", "value"}


def test_of_other_texts_nothing_is_kept() -> None:
    assert kept_columns("") == kept_columns("a: int") == kept_columns("a: int\n~Relation [a#1]") == set()


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ("StructField(user,IntegerType,true)", True),
        ("StructField(at,TimestampType,true), StructField(user,ShortType,true)", True),
        ("StructField(user,StringType,true)", False),  # "007" and "7" are two texts
        ("StructField(user,DoubleType,true)", False),
        ("StructField(user,StringType,true), StructField(s,StructType(StructField(user,ByteType,true)),true)", False),
    ],
)
def test_an_integer_stays_what_it_is_as_a_bigint(fields: str, kept: bool) -> None:
    parsed = f"~Generate inline(array(from_json({fields}, cast(value#7 as string), Some(UTC)))), false, [user#1]"
    widened = f"~Project [cast(u#5 as bigint) AS user#9L]\n+- ~Project [user#1 AS u#5]\n   +- {parsed}"
    assert kept_columns(f"user: bigint\n{widened}") == ({"user"} if kept else set())


def test_a_cast_to_bigint_changes_what_is_an_integer_in_one_topic_only() -> None:
    """The text of the union does not tell of which topic a row is."""

    def branch(id: int, kind: str) -> str:
        parsed = f"from_json(StructField(user,{kind},true), cast(value#7 as string), Some(UTC))"
        return f"~Project [user#{id}]\n   :  +- ~Generate inline(array({parsed})), false, [user#{id}]"

    plan = f"~Project [cast(user#1 as bigint) AS user#9L]\n+- ~Union false, false\n   :- {branch(1, 'IntegerType')}\n"
    for kind, kept in (("ByteType", {"user"}), ("StringType", set())):
        assert kept_columns(f"user: bigint\n{plan}   +- {branch(2, kind)}") == kept
