"""From a cell to a declaration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from qod_magics.application.application import Application
from qod_magics.application.cell import declaration_of, declared, find_inputs
from qod_magics.application.recipes.recipe import FunctionRecipe, SqlRecipe
from qod_magics.application.streams.options import StreamOptions, parse_stream_line
from qod_magics.application.streams.sink import ForEachBatch
from qod_magics.application.streams.sinks import as_sink
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import TopicInput
from qod_magics.errors import ApplicationError
from tests.application.frames import application, stream
from tests.raising import breaks
from tests.texts import tells

APP = application(stream("trips", topic="t"), stream("zones", topic="u"))


def cell(line: str, body: str, app: Application = APP, **namespace: Any) -> StreamDeclaration:
    declaration = declaration_of(parse_stream_line(line), body, namespace, app)
    app.declare(declaration)
    return declaration


def refusal(line: str, body: str, app: Application = APP) -> str:
    with pytest.raises(ApplicationError) as caught:
        cell(line, body, app)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_options_reach_the_declaration() -> None:
    declaration = cell(
        "q --from trips -p 2 -a 0.5 -n 3 --max-parallelism 6 --key zone --sink console --mode microbatch --trigger 2 "
        "--max-latency 4 --utility 3 --no-fuse",
        "",
    )
    assert declaration == StreamDeclaration(
        "q",
        declaration.recipe,
        ("trips",),
        priority=2,
        min_accuracy=0.5,
        parallelism=3,
        max_parallelism=6,
        key="zone",
        sink=declaration.sink,
        mode="microbatch",
        trigger_s=2.0,
        max_latency_s=4.0,
        utility=3.0,
        fuse=False,
    )
    assert str(declaration.sink) == "console"


def test_a_topic_with_its_schema() -> None:
    declaration = cell('q --topic nyc --schema "a INT" --starting earliest', "nyc.filter('a > 1')")
    assert declaration.inputs == TopicInput("nyc", "a INT", "earliest")


@pytest.mark.parametrize(
    ("line", "body", "inputs"),
    [
        ("q", "trips.join(zones, 'id')", ("trips", "zones")),
        ("q", "zones = zones.limit(1)\nzones", ("zones",)),
        ("q", "[t for t in [zones]][0]", ("zones",)),
        ("q", "trips = spark.readStream.format('rate').load()\ntrips", ()),
        ("q", "spark.readStream.format('rate').load()", ()),
        ("q --from zones trips", "trips.union(zones)", ("zones", "trips")),
        ("q --sql", "SELECT * FROM TRIPS t JOIN geography g USING (id)", ("trips",)),
        ("q --sql", "WITH z AS (SELECT * FROM zones) SELECT * FROM z", ("zones",)),
        ("q --from trips --sql", "SELECT * FROM trips MATCH_ALL_THAT_SPARK_MAY_LEARN (((", ("trips",)),
        ("q --from trips", "  \n# nothing to do\n", ("trips",)),
    ],
)
def test_inputs_are_found_by_name(line: str, body: str, inputs: tuple[str, ...]) -> None:
    assert cell(line, body).inputs == inputs


@pytest.mark.parametrize(
    ("line", "body", "says"),
    [
        ("q --from trips", "trips.join(zones, 'id')", "'zones'"),
        ("q --from trips zones", "trips.limit(1)", "'zones'"),
        ("q --from trips zones --sql", "SELECT * FROM trips", "'zones'"),
        ("q --from trps", "trps", "'trips'"),
        ("q --topic t", "source.join(zones, 'id')", "'zones'"),
        ("q --topic t --sql", "SELECT * FROM source JOIN zones USING (id)", "'zones'"),
        ("q --topic t --sql", "SELECT * FROM nothing", "topic"),
        ("q --sql", "SELECT * FROM trps", "'trips'"),
        ("q --sql", "SELECT * FROM source", "--topic"),
        ("q --sql", "SELECT 1", "table"),
        ("q --sql", "SELECT * FRM trips", "line 1"),
        ("q --sql", "", "empty"),
        ("q", "source.limit(1)", "--topic"),
        ("q", "", "body"),
        ("q", "trips.limit(", "line 1"),
        ("q --estimates", "trips.groupBy('zone').count()", "est.count()"),
        ("trips", "trips.limit(1)", "trips -> trips"),
    ],
)
def test_what_is_wrong_with_a_cell(line: str, body: str, says: str) -> None:
    assert says in refusal(line, body)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"upstream": ("trips",), "shed_by": ("user",)}, "--shed-by"),
        ({"upstream": ("trips",), "schema": "user LONG"}, "--schema"),
        ({"upstream": ("trips",), "starting": "earliest"}, "--starting"),
        ({"malformed": "fail"}, "--malformed"),
        ({"topic": "t", "malformed": "fail"}, "--malformed"),
        ({"topic": "t", "upstream": ("trips",)}, "--from"),
    ],
)
def test_options_without_a_cell_must_go_together_too(options: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ApplicationError) as caught:
        declared(StreamOptions("q", **options), FunctionRecipe(lambda rows: rows), APP)
    assert caught.value.option == wrong


def test_a_topic_and_a_stream_whose_names_differ_in_case() -> None:
    app = application(stream("trips", topic="Trips"), stream("zones", topic="u"))
    line, body = "trips --topic Trips --sql", "SELECT * FROM trips"
    assert cell(line, body, app).inputs == TopicInput("Trips"), "as when it was declared first"
    assert tells(refusal("q --topic Trips", "trips.union(source)", app), "'Trips'", "'trips'")
    assert "'zones'" in refusal(line, "SELECT * FROM trips JOIN Zones USING (id)", app)


def test_a_cell_run_again_is_equal_whatever_its_inputs_names_are_bound_to_by_then() -> None:
    def run(namespace: Mapping[str, Any]) -> StreamDeclaration:
        return declaration_of(parse_stream_line("q"), "trips.limit(n)", namespace, APP)

    assert run({"trips": object(), "n": 3}) == run({"trips": object(), "n": 3})
    assert run({"n": 3}) != run({"n": 4})


def test_a_function_finds_its_inputs_by_its_parameters() -> None:
    assert find_inputs("q", FunctionRecipe(lambda spark, trips: trips), APP) == ("trips",)
    assert find_inputs("q", FunctionRecipe(lambda spark: spark), APP) == ()
    assert find_inputs("q", FunctionRecipe(lambda df: df), APP, stated=("trips",)) == ("trips",)


def test_estimates_are_of_the_recipe() -> None:
    text = "SELECT count(*) FROM trips"
    assert cell("q --sql --estimates", text).recipe == SqlRecipe(text, estimates=True)
    assert cell("q --sql", text).recipe != SqlRecipe(text, estimates=True)


def test_sql_is_kept_as_written() -> None:
    text = "SELECT *  -- all\nFROM trips"
    assert cell("q --sql", text).recipe == SqlRecipe(text)


def write(batch: Any, number: int) -> None:
    """Take a batch."""


def test_a_function_of_the_notebook_is_a_sink_by_its_name() -> None:
    options = parse_stream_line("q --topic t --sink function:write -p 1")
    made = declaration_of(options, "source", {"write": write}, Application())
    assert made.sink == ForEachBatch(write)
    for namespace, got in (({}, "write"), ({"write": 7}, "write")):
        with pytest.raises(ApplicationError, check=breaks("function", name=got)):
            declaration_of(options, "source", namespace, Application())
    with pytest.raises(ApplicationError, check=breaks(name="write")):
        as_sink("function:write")
