"""What analyzed plans, as texts of Spark's, tell of a query's columns under shedding."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from qod_magics.application.shed_keys import Place
from qod_magics.estimate.aggregates import WHILE_EXACT
from qod_magics.spark.plans.expressions import Label
from qod_magics.spark.plans.key_choice import KeyChoice
from qod_magics.spark.plans.labels import labels
from tests.texts import tells

EXACT, INTERVAL, ESTIMATE, KEPT, NOT = Label
ROWS = """~EventTimeWatermark 9fe5, at#2: timestamp, 1 minutes
{0}+- ~Project [timestamp#0 AS at#2, value#1L AS user#3L, (value#1L % cast(7 as bigint)) AS zone#4L, (cast(value#1L as \
double) * 1.5) AS fare#5, 2.0 AS _weight#6]
{0}   +- ~Generate inline(array(from_json(StructField(a,LongType,true), cast(value#7 as string), Some(UTC)))), false, \
[timestamp#0, value#1L]
{0}      +- ~StreamingRelationV2 org.apache.spark.sql.kafka010.KafkaSourceProvider@7d, kafka, [], [key#8, value#7]"""


def over_rows(columns: str, operator: str, filtered: str = "") -> str:
    indent = "   " if filtered else ""
    below = ROWS.format("   " + indent)
    return "\n".join([columns, *([f"~{filtered}"] if filtered else []), f"{'+- ' * bool(filtered)}~{operator}"]) + (
        f"\n{indent}+- {below}"
    )


def zone_of_topic(plan: str) -> str:
    """The same where the zone is the topic's value, not computed."""
    return plan.replace("(value#1L % cast(7 as bigint)) AS zone#4L", "value#1L AS zone#4L")


@pytest.mark.parametrize(
    ("item", "label"),
    [
        ("zone#4L", EXACT),
        ("(zone#4L + cast(1 as bigint)) AS next#14L", EXACT),
        ("count(1) AS n#14L", KEPT),
        ("(count(1) * cast(2 as bigint)) AS twice#14L", KEPT),
        ("sum(fare#5) AS sum(fare)#14", KEPT),
        ("sum(_weight#6) AS rows#14", ESTIMATE),
        ("sum(_WEIGHT#6) AS rows#14", ESTIMATE),  # as the query spells it
        ("sum((fare#5 * _weight#6)) AS total#14", ESTIMATE),
        ("sum(net_weight#9) AS w#14", KEPT),
        ("(sum(fare#5) / cast(count(1) as double)) AS mean#14", ESTIMATE),
        ("round(((sum(fare#5) / cast(count(1) as double)) * 100.0), 2) AS percent#14", ESTIMATE),
        ("(sum(fare#5) / 100.0) AS euros#14", KEPT),
        ("((sum(fare#5) / 100.0) + sum(user#3L)) AS revenue#14", KEPT),
        ("((sum(fare#5) / cast(count(1) as double)) + sum(user#3L)) AS more#14", KEPT),
        ("concat(cast(sum(fare#5) as string),  / , cast(count(1) as string)) AS text#14", KEPT),
        ("avg(fare#5) AS m#14", ESTIMATE),
        ("percentile_approx(fare#5, 0.5, 10000, 0, 0) AS p#14", ESTIMATE),
        ("element_at(transform(array(struct(value, sum(_weight#6))), lambdafunction(x, x)), 1) AS count#14", INTERVAL),
        (
            "element_at(transform(array(struct(value, sum(_weight#6))), lambdafunction(x, x)), 1).low AS low#14",
            ESTIMATE,
        ),
        (
            "element_at(transform(array(struct(value, max(_weight#6))), lambdafunction(x, x)), 1).low AS low#14",
            ESTIMATE,
        ),
        ("max(fare#5) AS top#14", NOT),
        ("(max(fare#5) - avg(fare#5)) AS above#14", NOT),
        ("count(distinct user#3L) AS users#14L", NOT),
        ("approx_count_distinct(user#3L, 0.05, 0, 0) AS users#14L", NOT),
        ("mine(fare#5) AS of_the_users_own#14", NOT),
    ],
)
def test_what_shedding_does_to_an_aggregate(item: str, label: Label) -> None:
    name = item.split(" AS ")[-1].split("#")[0]
    found = labels(over_rows(f"zone: bigint, {name}: bigint", f"Aggregate [zone#4L], [zone#4L, {item}]"))
    assert found is not None
    assert [(column.name, column.label) for column in found.columns] == [("zone", EXACT), (name, label)]
    assert "groups" in str(found.missing)
    plan = over_rows(f"zone: bigint, {name}: bigint", f"Aggregate [zone#4L], [zone#4L, {item}]")
    kept, computed = labels(zone_of_topic(plan), [("value",)]), labels(plan, [("zone",)])
    assert kept is not None
    weighed = "_weight#6" in item.lower()  # the group is whole, its estimate is of others, too
    assert [column.label for column in kept.columns] == [EXACT, label if weighed else EXACT]
    assert computed is not None
    assert computed.columns == found.columns, "a key is told by where it is from, not by its name"
    assert "keys" in str(kept.missing)
    assert ("aggregates" in str(kept.missing)) is weighed


def test_an_aggregate_of_aggregates_is_no_better_than_these() -> None:
    inner = "Aggregate [zone#4L], [zone#4L, count(1) AS n#14L, avg(fare#5) AS m#15]"
    plan = (
        "top: bigint, sum(n): bigint, avg(m): double\n"
        f"~Aggregate [max(n#14L) AS top#16L, sum(n#14L) AS sum(n)#17L, avg(m#15) AS avg(m)#18]\n+- ~{inner}\n"
        f"   +- {ROWS.format('      ')}"
    )
    found = labels(plan)
    assert found is not None
    assert [column.label for column in found.columns] == [NOT, KEPT, NOT]


def test_sessions_of_rows_can_not_be_estimated_but_those_of_a_key_can() -> None:
    plan = over_rows(
        "session_window: struct<start:timestamp,end:timestamp>, user: bigint, count: bigint",
        "Aggregate [session_window#9-T60000ms, user#3L], [session_window#9-T60000ms, user#3L, count(1) AS count#10L]",
    )
    by_row, by_key = labels(plan), labels(plan, [("value",)])
    assert by_row is not None
    assert by_key is not None
    assert [column.label for column in by_row.columns] == [NOT, EXACT, NOT]
    assert [column.label for column in by_key.columns] == [EXACT] * 3


def test_rows_by_themselves_are_exact_and_weights_are_not_told_of() -> None:
    found = labels(over_rows("zone: bigint, _weight: double", "Project [zone#4L, _weight#6]", "Filter (zone#4L > 3)"))
    assert found is not None
    assert [column.name for column in found.columns] == ["zone"]
    assert found.are_exact


@pytest.mark.parametrize(
    ("operator", "keys", "missing"),
    [
        ("Distinct", [], "values that few rows have may be missing"),
        ("Distinct", [("timestamp",)], "values that few rows have may be missing"),
        ("Distinct", [("value",)], "rows of keys that are dropped are missing"),
        ("Deduplicate [user#3L]", [("value",)], "rows of keys that are dropped are missing"),
        ("Deduplicate [user#3L]", [("user",)], "values that few rows have may be missing"),
        ("DeduplicateWithinWatermark [user#3L]", [("timestamp",)], "values that few rows have may be missing"),
        ("Filter (n#14L > 3)", [], "a filter compares an aggregate of the rows kept"),
    ],
)
def test_rows_that_depend_on_several_may_be_missing(operator: str, keys: list[tuple[str, ...]], missing: str) -> None:
    grouped = "Aggregate [zone#4L], [zone#4L, count(1) AS n#14L]"
    below = grouped if operator.startswith("Filter") else "Project [zone#4L]"
    columns = "zone: bigint, n: bigint" if operator.startswith("Filter") else "zone: bigint"
    found = labels(zone_of_topic(over_rows(columns, below, operator)), keys)
    assert found is not None
    assert missing in str(found.missing)


@pytest.mark.parametrize(
    ("condition", "keys", "whole"),
    [
        ("(user#3L = buyer#13L)", [("value",), ("bought",)], True),
        ("((user#3L = buyer#13L) AND (at#2 >= at#12))", [("value",), ("bought",)], True),
        ("((at#2 >= at#12) AND ((zone#4L < 3) AND (user#3L = buyer#13L)))", [("value",), ("bought",)], True),
        ("((zone#4L = place#14L) AND NOT (user#3L = buyer#13L))", [("value",), ("bought",)], False),
        ("((zone#4L = place#14L) OR (user#3L = buyer#13L))", [("value",), ("bought",)], False),
        ("NOT ((zone#4L = place#14L) AND (user#3L = buyer#13L))", [("value",), ("bought",)], False),
        ("((user#3L = buyer#13L) = (zone#4L = place#14L))", [("value",), ("bought",)], False),
        ("(user#3L = buyer#13L), rightHint=(strategy=shuffle_hash)", [("value",), ("bought",)], True),
        ("(zone#4L = buyer#13L)", [("value",), ("bought",)], False),
        ("(user#3L = buyer#13L)", [("user",), ("buyer",)], False),
        ("(user#3L = buyer#13L)", [], False),
    ],
)
def test_pairs_are_whole_where_both_sides_are_shed_by_what_joins_them(
    condition: str, keys: list[tuple[str, ...]], whole: bool
) -> None:
    plan = f"user: bigint\n~Project [user#3L]\n+- ~Join Inner, {condition}\n   :- {ROWS.format('   :  ')}\n" + (
        "   +- ~Project [bought#11L AS buyer#13L]\n      +- ~StreamingRelationV2 kafka, [], [bought#11L]"
    )
    found = labels(plan, keys)
    assert found is not None
    assert ("pairs" in str(found.missing)) is not whole
    static = labels(plan.replace("+- ~Project [bought", "+- Project [bought"), keys)
    assert static is not None
    assert static.missing is None  # a table is not shed


@pytest.mark.parametrize(
    ("operator", "advice"),
    [
        ("Deduplicate [user#3L]", "--shed-by value"),  # as the topic calls it
        ("Deduplicate [at#2, user#3L]", "--shed-by timestamp value"),
        ("Deduplicate [zone#4L]", None),  # computed
        ("Distinct", "--shed-by value"),
        ("Aggregate [user#3L], [user#3L, count(1) AS n#14L]", None),  # what is missing are groups
        ("Aggregate [user#3L, session_window#9], [user#3L, count(1) AS n#14L]", "--shed-by value"),
        ("Aggregate [user#3L, zone#4L], [user#3L, max(fare#5) AS top#14]", "--shed-by value"),
    ],
)
def test_the_key_that_would_help_is_named_as_the_topic_has_it(operator: str, advice: str | None) -> None:
    if operator.startswith("Aggregate"):
        name = operator.rpartition(" AS ")[2].partition("#")[0]
        plan = over_rows(f"user: bigint, {name}: bigint", operator)
    else:
        plan = over_rows("user: bigint", "Project [user#3L]", operator)
    found = labels(plan)
    assert found is not None
    assert found.advice == advice
    assert advice is None or advice in str(found)
    other = labels(plan, inputs={})
    assert other is not None
    assert other.advice is None  # another task may have computed the column


def test_only_a_column_as_it_is_can_be_shed_by() -> None:
    choice = KeyChoice()
    choice.read(["value#1L", "at#2"])
    choice.rename(["value#1L AS user#3L", "-user#3L AS minus#4L", "upper(at#2) AS upper#5"])
    choice.narrow(["user#3L", "minus#4L", "upper#5", "at#2-T60000ms"])
    assert choice.advice() == "--shed-by value at"
    choice.narrow(["minus#4L"])
    assert choice.advice() is None


@pytest.mark.parametrize(
    ("condition", "above", "advice"),
    [
        ("(user#3L = buyer#13L)", "", "--shed-by value and --shed-by place"),
        ("((user#3L = buyer#13L) AND (zone#4L = buyer#13L))", "", "--shed-by value and --shed-by place"),
        ("(user#3L = buyer#13L)", "~Deduplicate [user#3L]\n", None),  # no column of both topics has that name
        ("(user#3L < buyer#13L)", "", None),
        ("NOT (user#3L = buyer#13L)", "", None),
        ("((zone#4L = buyer#13L) OR (user#3L = buyer#13L))", "", None),
    ],
)
def test_the_keys_that_would_keep_pairs_whole(condition: str, above: str, advice: str | None) -> None:
    topic = "from_json(StructField(a,LongType,true), cast(value#7 as string), Some(UTC))"
    inner = f"~Join Inner, {condition}\n   :- {ROWS.format('   :  ')}\n   +- ~Project [place#11L AS buyer#13L]\n" + (
        f"      +- ~Generate inline(array({topic})), "
        "false, [place#11L]\n         +- ~StreamingRelationV2 kafka, [], [value#7]"
    )
    found = labels(f"user: bigint\n{above}~Project [user#3L]\n+- {inner}")
    assert found is not None
    assert found.advice == advice
    assert (advice or "--shed-by a key") in str(found.missing)


def test_columns_of_another_task_are_as_that_task_left_them() -> None:
    found = labels(over_rows("value: bigint", "Project [value#1L]"), inputs={"value": KEPT, "fare": NOT})
    assert found is not None
    assert [column.label for column in found.columns] == [KEPT]


def test_a_text_that_does_not_tell_gives_none() -> None:
    assert labels("") is None
    assert labels("a: int\n~Relation [a#1]") is None
    assert labels(over_rows("a: int, b: int", "Project [concat(a#1, ), c) AS a#2, b#3]")) is None


def test_the_words_name_each_column_once() -> None:
    found = labels(
        over_rows(
            "zone: bigint, n: bigint, top: double",
            "Aggregate [zone#4L], [zone#4L, count(1) AS n#14L, max(fare#5) AS top#15]",
        )
    )
    assert tells(
        found, "zone exact", "n", "qod_magics.estimate", "top", "not estimable", "--min-accuracy 1", "--shed-by"
    )
    assert found is not None
    assert tells(found.short, "zone exact", "n", "top", "not estimable")
    assert "--" not in found.short


def counted(*columns: str, whole: bool = False, of: str = "") -> str:
    """A count of different values, as the column `users`, the way Spark writes it."""
    hashed = f"xxhash64({', '.join(columns)}, 42)"
    there = f"isnotnull({columns[0]})"
    if whole:
        entry = f"struct(counted, {hashed}, weight, CASE WHEN {there} THEN cast(_weight#6 as double) END)"
        first = f"sums, aggregate(sort_array(collect_set(CASE WHEN {there} THEN {entry} END, 0, 0, true), true), x, x)"
    else:
        first = (
            f"{WHILE_EXACT}, cast(size(collect_set(CASE WHEN ({there} AND (cast(_weight#6 as double) <= 1.0)) "
            f"THEN {hashed} END, 0, 0, true), false) as double)"
        )
    return (
        f"element_at(transform(array(struct({first}, greatest, max(cast(_weight#6 as double)))), "
        f"lambdafunction(x, x)), 1, None, true){of} AS users#15"
    )


@pytest.mark.parametrize(
    ("item", "keys", "label", "advice"),
    [
        (counted("user#3L"), [], NOT, "--shed-by value"),  # as the topic calls it
        (counted("user#3L", "at#2"), [], NOT, "--shed-by value timestamp"),
        (counted("user#3L", "zone#4L"), [("zone",)], NOT, "--shed-by value"),
        (counted("zone#4L"), [], NOT, "--shed-by what it counts"),
        (counted("upper(cast(user#3L as string))"), [], NOT, "--shed-by what it counts"),
        (counted("user#3L", of=".value"), [], NOT, "--shed-by value"),
        (counted("user#3L", whole=True), [("user",)], INTERVAL, None),
        (counted("user#3L", whole=True, of=".value"), [("user",)], ESTIMATE, None),
    ],
)
def test_different_values_can_be_estimated_where_their_topic_is_shed_by_them(
    item: str, keys: list[tuple[str, ...]], label: Label, advice: str | None
) -> None:
    operator = f"Aggregate [zone#4L], [zone#4L, {item}]"
    found = labels(over_rows("zone: bigint, users: bigint", operator), keys)
    assert found is not None
    assert [(column.label, column.advice) for column in found.columns[1:]] == [(label, advice)]
    assert tells(found, "users", "not estimable", "--min-accuracy 1", advice) is (label is NOT)
    above = over_rows("n: bigint", "Project [users#15.value AS n#16]", "") + f"\n+- ~{operator}"
    again = labels(above.partition("\n+- ~EventTime")[0] + f"\n+- ~{operator}\n   +- {ROWS.format('      ')}", keys)
    assert again is not None
    assert [(column.name, column.label, column.advice) for column in again.columns] == [("n", label, advice)]


def parsed_from(topic: str, columns: str, indent: str) -> str:
    """The rows of a topic, the way Spark writes them."""
    parsed = "from_json(StructField(a,LongType,true), cast(value#7 as string), Some(UTC))"
    counted = "[count(1) AS rows#8L, count(CASE WHEN (_u#1 < _p#2) THEN 1 END) AS kept#9L], 3"
    return (
        f"~Generate inline(array({parsed})), false, [{columns}]\n{indent}+- ~CollectMetrics shed.{topic}, {counted}\n"
        f"{indent}   +- ~StreamingRelationV2 kafka, [], [value#7]"
    )


def test_what_helps_is_asked_of_each_topic() -> None:
    """By operator, so that several queries can agree."""
    left, right = parsed_from("clicks", "user#3L, page#4L", "   :  "), parsed_from("orders", "place#11L", "         ")
    inner = (
        f"~Join Inner, (user#3L = buyer#13L)\n   :- {left}\n   +- ~Project [place#11L AS buyer#13L]\n      +- {right}"
    )
    found = labels(f"user: bigint\n~Project [user#3L]\n+- {inner}")
    assert found is not None
    assert found.asks == (((Place("clicks", "user"), Place("orders", "place")),),)
    topic = parsed_from("t", "user#3L, page#4L", "      ")
    distinct = labels(f"user: bigint\n~Deduplicate [user#3L, page#4L]\n+- ~Project [user#3L]\n   +- {topic}")
    assert distinct is not None
    assert distinct.asks == (((Place("t", "user"),), (Place("t", "page"),)),)
    exploded = labels(
        f"tag: string\n~Deduplicate [tag#5]\n+- ~Project [tag#5]\n   +- ~Generate explode(tags#4), false, [tag#5]\n"
        f"      +- {parsed_from('t', 'user#3L, tags#4', '         ')}"
    )
    assert exploded is not None
    assert (exploded.advice, exploded.asks) == (None, ()), "the topic has no such column"
    unnamed = labels(over_rows("user: bigint", "Project [user#3L]", "Deduplicate [user#3L]"))
    assert unnamed is not None
    assert (unnamed.advice, unnamed.asks) == ("--shed-by value", ())


def test_a_maximum_beside_them_asks_for_another_key() -> None:
    item = counted("user#3L")
    found = labels(
        over_rows(
            "timestamp: timestamp, top: double, users: bigint",
            f"Aggregate [at#2], [at#2 AS timestamp#16, max(fare#5) AS top#14, {item}]",
        )
    )
    assert found is not None
    assert tells(found, "top", "not estimable", "--min-accuracy 1", "--shed-by")
    assert tells(found, "users", "not estimable", "--min-accuracy 1", "--shed-by value")
    assert found.advice is None
    alone = labels(over_rows("users: bigint", f"Aggregate [{item}]"))
    assert alone is not None
    assert alone.advice == "--shed-by value"


#: Columns of the table in lab 8, as Spark's plan has them.
IN_PLAN = {
    "zone": "zone#4L",
    "sum(_weight)": "sum(_weight#6) AS x#14",
    "sum(fare * _weight)": "sum((fare#5 * _weight#6)) AS x#14",
    "avg(fare)": "avg(fare#5) AS x#14",
    "percentile_approx(fare, 0.5)": "percentile_approx(fare#5, 0.5, 10000, 0, 0) AS x#14",
    "count(*)": "count(1) AS x#14L",
    "sum(fare)": "sum(fare#5) AS x#14",
    "max(fare)": "max(fare#5) AS x#14",
    "count(distinct user)": "count(distinct user#3L) AS x#14L",
}


def test_the_table_in_the_lab_says_what_cells_say() -> None:
    lab = json.loads((Path(__file__).parents[3] / "notebooks" / "lab8_how_far_off.ipynb").read_text("utf-8"))
    text = "\n".join("".join(cell["source"]) for cell in lab["cells"])
    rows = [line.split("|") for line in text.partition("| column | under shedding |")[2].splitlines() if "|" in line]
    told = {item: row[2].strip() for row in rows for item in re.findall("`([^`]+)`", row[1])}
    estimates = {item for item in told if item.startswith("est.")}
    assert {told[item].partition(",")[0] for item in estimates} == {"estimated"}  # as the test of aggregates has it
    assert set(told) == IN_PLAN.keys() | estimates
    for item, plan in IN_PLAN.items():
        name = plan.rpartition(" AS ")[2].partition("#")[0]
        columns = "zone: bigint" if name == "zone" else f"zone: bigint, {name}: bigint"
        operator = f"Aggregate [zone#4L], [zone#4L{'' if name == 'zone' else f', {plan}'}]"
        said = str(labels(over_rows(columns, operator)))
        assert re.search(rf"\b{name}\b(, \w+)* {re.escape(told[item])}", said), item


def of_two(operator: str, left: str, right: str, above: str = "") -> str:
    """Operators of two topics: clicks have the user #3 and the page #4, orders the buyer #11 and the item #12."""
    clicks = parsed_from("clicks", "user#3L, page#4L, _weight#6", "   :     ")
    orders = parsed_from("orders", "buyer#11L, item#12L, _weight#16", "         ")
    inner = f"~{operator}\n   :- ~{left}\n   :  +- {clicks}\n   +- ~{right}\n      +- {orders}"
    if above:
        inner = f"~{above}\n   +- " + inner.replace("\n", "\n   ")
    return f"+- {inner}"


COUNT = "element_at(transform(array(struct(value, sum(_weight#{}))), lambdafunction(x, x)), 1) AS n#20"


@pytest.mark.parametrize(
    ("keys", "right", "label"),
    [
        ([("user",), ("item",)], "Project [buyer#11L, item#12L]", KEPT),
        ([("user",), ("buyer",)], "Project [buyer#11L, item#12L]", KEPT),
        ([("user",), ("user",)], "Project [buyer#11L, item#12L]", KEPT),
        ([("user",), ("user",)], "Project [user#11L, item#12L]", EXACT),
        ([("user",), ("user",)], "Project [item#12L, user#11L]", KEPT),
    ],
)
def test_a_union_is_by_key_where_all_its_rows_are(keys: list[tuple[str, ...]], right: str, label: Label) -> None:
    plan = of_two("Union false, false", "Project [user#3L, page#4L]", right)
    if "user#11L" in right:
        plan = plan.replace("buyer#11L", "user#11L")
    found = labels(f"user: bigint, n: bigint\n~Aggregate [user#3L], [user#3L, count(1) AS n#20L]\n{plan}", keys)
    assert found is not None
    assert [column.label for column in found.columns] == [EXACT, label]


@pytest.mark.parametrize(
    ("project", "group", "label"),
    [
        ("user#3L AS who#9L", "who#9L", EXACT),
        ("cast(user#3L as string) AS user#9", "user#9", EXACT),
        ("substring(cast(user#3L as string), 1, 3) AS user#9", "user#9", KEPT),
        ("page#4L AS user#9L", "user#9L", KEPT),
    ],
)
def test_a_column_that_only_has_the_name_of_the_key_is_none(project: str, group: str, label: Label) -> None:
    topic = parsed_from("t", "user#3L, page#4L, _weight#6", "      ")
    name = group.partition("#")[0]
    plan = f"~Aggregate [{group}], [{group}, count(1) AS n#20L]\n+- ~Project [{project}, _weight#6]\n   +- {topic}"
    found = labels(f"{name}: bigint, n: bigint\n{plan}", [("user",)])
    assert found is not None
    assert [column.label for column in found.columns] == [EXACT, label]
    whole = counted(group, whole=True).replace("#15", "#20")
    counts = labels(
        f"users: bigint\n~Aggregate [{whole}]\n+- ~Project [{project}, _weight#6]\n   +- {topic}", [("user",)]
    )
    assert counts is not None
    assert (counts.refused is None) is (label is EXACT)
    assert counts.refused is None or "key" in counts.refused


def test_a_key_is_one_in_any_case() -> None:
    plan = f"~Aggregate [User#3L], [User#3L, count(1) AS n#20L]\n+- {parsed_from('t', 'USER#3L, page#4L', '   ')}"
    found = labels(f"User: bigint, n: bigint\n{plan}", [("user",)])
    assert found is not None
    assert [column.label for column in found.columns] == [EXACT, EXACT]


def test_a_column_of_a_common_table_expression_is_what_it_is_there() -> None:
    topic = parsed_from("t", "user#3L, page#4L", ":              ")
    plan = f"""user: bigint, n: bigint, m: bigint
~WithCTE
:- ~CTERelationDef 0, false
:  +- ~SubqueryAlias c
:     +- ~Project [user#3L, page#4L AS m#5L]
:        +- ~Aggregate [user#3L, page#4L], [user#3L, count(1) AS page#4L]
:           +- {topic}
+- ~Aggregate [user#23L], [user#23L, count(1) AS n#20L, max(m#25L) AS m#26L]
   +- ~CTERelationRef 0, true, [user#23L, m#25L], true, false"""
    found = labels(plan, [("user",)])
    assert found is not None
    assert [column.label for column in found.columns] == [EXACT] * 3
    by_row = labels(plan.replace("#23L", "#3L").replace("#25L", "#5L"))
    assert by_row is not None
    assert [column.label for column in by_row.columns] == [EXACT, KEPT, NOT]
    again = labels(plan.replace("max(m#25L)", "avg(m#25L)"))  # read once more, with other ids
    assert again is not None
    assert [column.label for column in again.columns] == [EXACT, KEPT, NOT], "an average of counts"


GROUPED = "Aggregate [page#4L], [page#4L, count(1) AS n#14L, sum(user#3L) AS total#15L]"


STATE = "f(user#3L)#7, [user#3L], [user#28L, n#29L], [StructField(n,LongType,true)], Append, NoTimeout"


def computed(operator: str, below: str = "Project [user#3L, page#4L]") -> str:
    topic = parsed_from("t", "user#3L, page#4L, _weight#6", "         ")
    return f"+- ~{operator}\n   +- ~{below}\n      +- {topic}"


@pytest.mark.parametrize(
    ("operator", "metric"),
    [
        ("Generate stack(2, n, n#14L, total, total#15L), false, [metric#16, v#17L]", KEPT),
        ("Expand [[page#4L, n, n#14L], [page#4L, total, total#15L]], [page#4L, metric#16, v#17L]", EXACT),
        ("Expand [[page#4L, a, b, n#14L], [page#4L, total, total#15L]], [page#4L, metric#16, v#17L]", KEPT),
    ],
)
def test_columns_made_of_others_are_no_better_than_these(operator: str, metric: Label) -> None:
    plan = f"~Project [page#4L, metric#16, v#17L]\n{computed(operator, GROUPED)}"
    found = labels(f"page: bigint, metric: string, v: bigint\n{plan}")
    assert found is not None
    assert [column.label for column in found.columns][1:] == [metric, KEPT]


def test_a_row_of_a_union_is_no_better_than_the_worst_of_its_branches() -> None:
    plan = of_two("Union false, false", "Project [page#4L, user#3L]", "Project [item#12L, count(1) AS n#14L]")
    plan = plan.replace("Project [item#12L, count", "Aggregate [item#12L], [item#12L, count")
    found = labels(f"page: bigint, user: bigint\n~Project [page#4L, user#3L]\n{plan}")
    assert found is not None
    assert [column.label for column in found.columns] == [EXACT, KEPT]


@pytest.mark.parametrize(
    ("operator", "advice"),
    [
        ("FlatMapGroupsInPandas [user#3L], f(user#3L, page#4L)#7, [user#28L, n#29L]", "--shed-by user"),
        (f"FlatMapGroupsInPandasWithState {STATE}", "--shed-by user"),
        ("TransformWithStateInPySpark f(user#3L)#7, 1, [user#28L, n#29L], Append, NoTime, pandas", "--shed-by user"),
        ("MapInPandas f(user#3L, page#4L)#7, [user#28L, n#29L], false", "functions of single rows"),
        ("MapInArrow f(user#3L, page#4L)#7, [user#28L, n#29L], false", "functions of single rows"),
        ("ScriptTransformation f, [user#28L, n#29L], ScriptInputOutputSchema(List())", "functions of single rows"),
    ],
)
def test_what_a_function_makes_of_several_rows_is_not_estimable(operator: str, advice: str) -> None:
    header, plan = "user: bigint, n: bigint\n", computed(operator)
    above = "~Project [user#28L, twice#30L]\n+- ~Project [user#28L, (n#29L * 2) AS twice#30L]\n   "
    projected = header.replace("n:", "twice:") + above + plan.replace("\n", "\n   ")
    for found in (labels(header + plan), labels(projected)):
        assert found is not None
        assert [column.label for column in found.columns] == [NOT, NOT]
        assert tells(found, "not estimable", "--min-accuracy 1", advice)
    by_key = labels(projected, [("user",)])
    assert by_key is not None
    assert [column.label for column in by_key.columns] == [EXACT if "--shed-by" in advice else NOT] * 2


INNER = "Join Inner, (user#3L = buyer#11L)"
BOTH = ("Project [user#3L, page#4L, _weight#6]", "Project [buyer#11L, item#12L, _weight#16]")
BARE = (BOTH[0], "Project [buyer#11L]")


@pytest.mark.parametrize(
    ("join", "sides", "above", "weight", "keys", "refused"),
    [
        (INNER, BARE, "", 6, [], True),
        ("Join LeftSemi, (user#3L = buyer#11L)", BARE, "", 6, [], True),
        (INNER, BOTH, "Project [page#4L, (_weight#6 * _weight#16) AS _weight#18]", 18, [], False),
        (INNER, BOTH, "Project [page#4L, _weight#6 AS _weight#18]", 18, [], True),
        (INNER, BOTH, "Project [page#4L, _WEIGHT#6 AS _weight#18]", 18, [], True),
        (INNER, BOTH, "Project [page#4L, (_WEIGHT#6 * _Weight#16) AS _WEIGHT#18]", 18, [], False),
        (INNER, BOTH, "Project [page#4L, cast(null as double) AS _weight#18]", 18, [], False),
        (INNER, BARE, "", 6, [("user",), ("buyer",)], False),
        (INNER, BARE, "", 6, [("page",), ("item",)], True),
        ("Join Inner, ((page#4L = 3) AND NOT (user#3L = buyer#11L))", BARE, "", 6, [("user",), ("buyer",)], True),
        ("Filter (user#3L = buyer#11L)\n+- ~Join Inner", BARE, "", 6, [("user",), ("buyer",)], False),
    ],
)
def test_an_estimate_of_pairs_needs_the_weights_of_both(
    join: str, sides: tuple[str, str], above: str, weight: int, keys: list[tuple[str, ...]], refused: bool
) -> None:
    plan = of_two(join.rpartition("~")[2], *sides, above or join.partition("\n")[0] * ("Filter" in join))
    found = labels(f"n: struct\n~Aggregate [{COUNT.format(weight)}]\n{plan}", keys)
    assert found is not None
    assert (found.refused is not None) is refused
    if refused and not keys:
        assert tells(found.refused, "join", "_weight", "--shed-by")
    static = plan.replace("+- ~Project [buyer", "+- Project [buyer")
    alone = labels(f"n: struct\n~Aggregate [{COUNT.format(weight)}]\n{static}", keys)
    assert alone is not None
    assert alone.refused is None, "a table is not shed"


@pytest.mark.parametrize(
    ("kind", "keys", "found"),
    [
        ("LeftOuter", [], [EXACT, NOT, NOT]),
        ("RightOuter", [], [NOT, EXACT, NOT]),
        ("FullOuter", [], [NOT, NOT, NOT]),
        ("Inner", [], [EXACT, EXACT, EXACT]),
        ("LeftOuter", [("user",), ("buyer",)], [EXACT, EXACT, EXACT]),
        ("LeftOuter", [("page",), ("item",)], [EXACT, NOT, NOT]),
    ],
)
def test_the_side_of_an_outer_join_that_is_empty_may_have_been_dropped(
    kind: str, keys: list[tuple[str, ...]], found: list[Label]
) -> None:
    join = of_two(f"Join {kind}, ((user#3L = buyer#11L) AND (page#4L >= item#12L))", *BOTH)
    items = "page#4L, item#12L, coalesce(item#12L, page#4L) AS any#18L, coalesce(user#3L, buyer#11L) AS user#19L"
    plan = f"page: bigint, item: bigint, any: bigint, user: bigint\n~Project [{items}]\n{join}"
    told = labels(plan, keys)
    assert told is not None
    assert [column.label for column in told.columns] == [*found, EXACT], "a row has the user of either side"
    empty = "where a side of an outer join is empty, the row there may have been dropped"
    assert (empty in str(told.missing)) is (NOT in found)
    assert not told.are_exact
    if NOT in found:
        assert tells(told, "any", "not estimable", "--min-accuracy 1", "--shed-by user and --shed-by buyer")
        none = labels(plan.replace("(user#3L = buyer#11L)", "(user#3L < buyer#11L)"))
        assert tells(none, "any, user", "not estimable", "--min-accuracy 1", "--shed-by")
    timed = labels(plan.replace("user#3L", "user#3-T1000ms").replace("buyer#11L", "buyer#11-T1000ms"), keys)
    assert timed is not None
    assert timed.columns[-1].label == EXACT
    static = labels(plan.replace("+- ~Project [buyer", "+- Project [buyer"))
    assert static is not None
    assert static.are_exact, "a table is not shed"


def test_a_group_of_an_empty_side_asks_for_the_key_of_the_join() -> None:
    join = of_two("Join LeftOuter, (user#3L = buyer#11L)", *BOTH)
    items = "page#4L, count(1) AS n#20L, sum(item#12L) AS sum#21L"
    plan = f"page: bigint, n: bigint, sum: bigint\n~Filter isnull(sum#21L)\n+- ~Aggregate [page#4L], [{items}]\n   "
    found = labels(plan + join.replace("\n", "\n   "))
    assert found is not None
    assert [column.label for column in found.columns] == [EXACT, KEPT, NOT]
    assert found.advice == "--shed-by user and --shed-by buyer"
    estimate = COUNT.format(6).replace("_weight#6", "item#12L * _weight#6")
    estimated = labels(f"n: struct\n~Aggregate [{estimate}]\n{join}", [("user",), ("page",)])
    assert estimated is not None
    assert [column.label for column in estimated.columns] == [INTERVAL], "its weight is null there"


@pytest.mark.parametrize(
    ("operator", "keys", "refused"),
    [
        ("Deduplicate [page#4L]", [], True),
        ("DeduplicateWithinWatermark [page#4L]", [("user",)], True),
        ("Deduplicate [user#3L, page#4L]", [("user",)], False),
        ("Filter (page#4L > 3)", [], False),
    ],
)
def test_an_estimate_of_rows_without_duplicates_needs_all_copies_or_none(
    operator: str, keys: list[tuple[str, ...]], refused: bool
) -> None:
    below = f"~{operator}\n   +- ~Project [page#4L, user#3L, _weight#6]\n      +- " + parsed_from(
        "t", "user#3L, page#4L, _weight#6", "         "
    )
    found = labels(f"n: struct\n~Aggregate [{COUNT.format(6)}]\n+- {below}", keys)
    rows = labels(f"page: bigint, _weight: double\n~Project [page#4L, _weight#6]\n+- {below}", keys)
    assert found is not None
    assert rows is not None
    assert (found.refused is not None) is (rows.unfit is not None) is refused
    assert rows.refused is None
    if refused:
        assert tells(found.refused, "duplicates", "--shed-by page", "--min-accuracy 1")
        read = parsed_from("d", "page#4L, _weight#6", "   ")
        later = labels(f"n: struct\n~Aggregate [{COUNT.format(6)}]\n+- {read}", [], {"page": EXACT}, rows.unfit)
        assert later is not None
        assert later.refused is not None, "another task estimates"


def test_an_estimate_of_a_whole_group_is_none_of_it() -> None:
    """The plain count of a group that is kept whole is exact; an estimate stands for groups that are dropped, too."""
    items = f"value#1L, count(1) AS rows#14L, sum(_weight#6) AS w#15, {COUNT.format(6)}"
    plan = over_rows(
        "value: bigint, rows: bigint, w: double, n: struct<value:double>", f"Aggregate [value#1L], [{items}]"
    )
    found = labels(plan, [("value",)])
    assert found is not None
    assert [column.label for column in found.columns] == [EXACT, EXACT, ESTIMATE, INTERVAL]
    assert "exact" in str(found.missing)


def test_items_of_one_record_are_not_independent() -> None:
    topic = parsed_from("t", "user#3L, tags#4, _weight#6", "      ")
    plan = f"n: struct\n~Aggregate [{COUNT.format(6)}]\n+- ~Generate explode(tags#4), false, [tag#5]\n   +- {topic}"
    found, plain = labels(plan), labels(plan.replace("~Generate explode(tags#4), false, [tag#5]", "~Filter (1 = 1)"))
    by_key = labels(plan, [("user",)])  # keys are taken as a whole, all their rows
    assert found is not None
    assert "intervals" in str(found.missing)
    assert plain is not None
    assert plain.missing is None
    assert by_key is not None
    assert by_key.missing is None
