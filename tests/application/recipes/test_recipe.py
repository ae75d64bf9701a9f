"""Recipes, as far as they go without Spark; tests/live/test_recipes.py builds real ones."""

from __future__ import annotations

import functools
import math
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.application.recipes.building import raise_unless_connection
from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.recipes.recipe import FunctionRecipe, Recipe, SqlRecipe, as_recipe
from qod_magics.errors import ApplicationError
from tests.texts import tells


def refusal(source: str) -> str:
    with pytest.raises(ApplicationError) as caught:
        PythonRecipe(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def failure(recipe: PythonRecipe | FunctionRecipe, **inputs: object) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        recipe.build(None, inputs)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("a = 1\nb = = 2", "(b = = 2)"),
        ("if a:\nb", "line 2"),
        ("return a", "(return a)"),
        ("await a", "line 1"),
        ("x\n\0", "null"),
        ("a = trips", "(a = trips)"),
        ("trips\nfor x in trips:\n    x", "(for x in trips:)"),
    ],
)
def test_source_that_can_not_be_a_recipe(source: str, says: str) -> None:
    assert says in refusal(source)


def test_a_failure_in_the_body_names_its_line_and_keeps_its_cause() -> None:
    error = failure(PythonRecipe("x = 1\n\ny = x / 0\nx"))
    assert tells(error, "line 3", "y = x / 0", "ZeroDivisionError")
    assert isinstance(error.__cause__, ZeroDivisionError)


def test_the_line_is_that_of_the_recipe_also_when_others_code_fails() -> None:
    recipe = PythonRecipe("def half(x):\n    return math.sqrt(x)\nhalf(-1)", {"math": math})
    assert tells(failure(recipe), "line 2", "return math.sqrt(x)", "ValueError")
    assert tells(failure(PythonRecipe("1\nint('x')")), "line 2", "int('x')", "ValueError")


def test_a_message_of_many_lines_is_cut_to_its_first() -> None:
    assert str(failure(PythonRecipe("raise_it('\\n first.\\nsecond')", {"raise_it": _raise}))).endswith(
        "RuntimeError: first"
    )


def _raise(message: str) -> None:
    raise RuntimeError(message)


@pytest.mark.parametrize(("source", "kind"), [("1 + 1", "an int"), ("None", "a NoneType"), ("'trips'", "a str")])
def test_a_result_that_is_no_data_frame(source: str, kind: str) -> None:
    assert kind in str(failure(PythonRecipe(source)))


def test_a_recipe_takes_what_it_reads_of_the_name_space_as_it_is_now() -> None:
    namespace = {"limits": [1, 2], "other": object(), "spark": object()}
    recipe = PythonRecipe(
        "check(limits, spark)", {**namespace, "check": lambda limits, spark: _raise(f"{limits} {spark}")}
    )
    namespace["limits"].append(3)  # type: ignore[attr-defined]
    assert str(failure(recipe)).endswith("RuntimeError: [1, 2] None")
    assert "other" not in recipe.captured


def test_what_a_body_sets_is_gone_at_the_next_build() -> None:
    recipe = PythonRecipe("seen = 'set' if 'seen' in globals() else 'unset'\nint(seen)")
    assert "'unset'" in str(failure(recipe))
    assert "'unset'" in str(failure(recipe))


def test_inputs_win_over_the_name_space() -> None:
    recipe = PythonRecipe("fail(str(trips))", {"trips": "old", "fail": _raise})
    assert str(failure(recipe, trips="new")).endswith("RuntimeError: new")


def test_recipes_are_equal_when_they_make_the_same() -> None:
    def helper() -> None: ...

    assert PythonRecipe("f(x)", {"x": [1], "f": helper}) == PythonRecipe("f(x)", {"x": [1], "f": helper, "y": 2})
    assert PythonRecipe("f(x)", {"x": 1}) != PythonRecipe("f(x)", {"x": 1.0})
    assert PythonRecipe("f(x)", {"x": 1}) != PythonRecipe("f(x)")
    assert PythonRecipe("f(x)", {"f": helper}) != PythonRecipe("f(x)", {"f": lambda: None})
    assert PythonRecipe("f(x)") != PythonRecipe("f( x)")
    assert SqlRecipe("SELECT 1") == SqlRecipe("SELECT 1")
    assert FunctionRecipe(helper) == FunctionRecipe(helper)
    assert len({PythonRecipe("a"), PythonRecipe("a"), SqlRecipe("a"), SqlRecipe("a")}) == 2


def test_an_empty_recipe_passes_only_one_input_through() -> None:
    assert PythonRecipe("\n# nothing").passes_through
    assert "there are 2" in str(failure(PythonRecipe(""), a=object(), b=object()))
    assert "there are 0" in str(failure(PythonRecipe("")))


def test_a_function_gets_what_its_parameters_name() -> None:
    def positional(spark, trips, /, *, n=3):  # type: ignore[no-untyped-def]
        _raise(f"{spark} {trips} {n}")

    def every(spark, **inputs):  # type: ignore[no-untyped-def]
        _raise(str(sorted(inputs)))

    def lone(df):  # type: ignore[no-untyped-def]
        _raise(str(df))

    assert str(failure(FunctionRecipe(positional), trips="T")).endswith("RuntimeError: None T 3")
    assert str(failure(FunctionRecipe(every), a=1000, b=2000)).endswith("['a', 'b']")
    frame = object()
    assert str(failure(FunctionRecipe(every), source=frame, taxi=frame)).endswith("['source']")
    assert str(failure(FunctionRecipe(lone), trips="T")).endswith("RuntimeError: T")
    frame = "T"
    assert str(failure(FunctionRecipe(lone), source=frame, taxi=frame)).endswith("RuntimeError: T")


def test_recipes_differ_when_what_their_functions_read_does() -> None:
    notebook: dict[str, Any] = {"__name__": "__main__", "LIMIT": 10}
    code = "def inner(x):\n    return x > LIMIT\ndef big(df):\n    return [inner(x) for x in df]\n"
    exec(code, notebook)
    notebook["wrapped"] = functools.update_wrapper(lambda df: df, notebook["big"])
    for name in ("big", "wrapped"):
        before = PythonRecipe(f"{name}(trips)", notebook)
        assert before == PythonRecipe(f"{name}(trips)", notebook)
        notebook["LIMIT"] += 90
        assert before != PythonRecipe(f"{name}(trips)", notebook)
    notebook["unread"] = 1
    assert PythonRecipe("big(trips)", notebook) == PythonRecipe("big(trips)", {**notebook, "unread": 2})


def test_functions_run_over_what_they_read_when_the_recipe_was_created() -> None:
    notebook: dict[str, Any] = {"__name__": "__main__", "LIMIT": 10, "fail": _raise}
    exec("def inner():\n    return LIMIT\ndef keep(df):\n    fail(f'{df} over {inner()}')", notebook)
    recipes = [PythonRecipe("keep(trips)", notebook), FunctionRecipe(notebook["keep"])]
    notebook["LIMIT"] = 50
    for recipe in recipes:
        assert str(failure(recipe, trips="T")).endswith("RuntimeError: T over 10")
    assert recipes[1] != FunctionRecipe(notebook["keep"])


def test_a_lambda_in_a_cell_that_is_run_again_is_the_same_recipe() -> None:
    def run(source: str, limit: int = 1) -> FunctionRecipe:
        return FunctionRecipe(eval(source, {"__name__": "__main__", "LIMIT": limit}))

    again = run("lambda rows: rows.where(rows.x > LIMIT)")
    assert run("lambda rows: rows.where(rows.x > LIMIT)") == again
    assert len({run("lambda rows: rows.where(rows.x > LIMIT)"), again}) == 1
    assert run("lambda rows: rows.where(rows.x > LIMIT)", limit=2) != again
    assert run("lambda rows: rows.where(rows.x < LIMIT)") != again
    assert again != SqlRecipe("SELECT 1")


def test_without_a_recipe_it_is_the_same_each_time() -> None:
    assert as_recipe(None) == as_recipe(None)
    assert as_recipe(None) != as_recipe(lambda rows: rows.limit(1))


def test_a_function_that_names_other_inputs_is_told_so() -> None:
    def join(trips, zones):  # type: ignore[no-untyped-def]
        return trips

    said = str(failure(FunctionRecipe(join), trips="T"))
    assert tells(said, "'join'", "trips, zones", "trips")
    assert "trips, zones, x" in str(failure(FunctionRecipe(join), trips="T", zones="Z", x="X"))


@pytest.mark.parametrize(
    ("recipe", "weighs"),
    [
        (SqlRecipe("SELECT *, _weight FROM trips"), True),
        (SqlRecipe("SELECT est_count(*) FROM trips"), True),
        (SqlRecipe("SELECT * FROM trips"), False),
        (SqlRecipe("SELECT *, t._weight FROM trips t"), True),
        (SqlRecipe("SELECT _WEIGHT FROM TRIPS"), True),
        (FunctionRecipe(lambda trips: trips.select(trips._Weight)), True),
        (SqlRecipe("SELECT net_weight, _weights FROM parcels"), False),
        (PythonRecipe("trips.select('_weight')"), True),
        (PythonRecipe("trips"), False),
        (PythonRecipe("parcels.where('net_weight > 10')"), False),
        (PythonRecipe(""), False),
        (PythonRecipe("f(trips)", {"f": lambda rows: rows.agg("sum(_weight)")}), True),
        (PythonRecipe("f(trips)", {"f": lambda rows: rows}), False),
        (FunctionRecipe(lambda trips: trips.select("id", "_weight")), True),
        (FunctionRecipe(lambda trips: trips.select(*(name for name in ("id", "_weight")))), True),
        (FunctionRecipe(lambda trips: trips.select(trips._weight)), True),
        (FunctionRecipe(lambda trips: trips.where("id > 0")), False),
        (FunctionRecipe(lambda trips: trips.where("net_weight > 10").select(trips.net_weight)), False),
        (FunctionRecipe(functools.partial(lambda trips, _: trips, _=1)), True),
    ],
)
def test_a_recipe_tells_whether_it_names_the_weight(recipe: Recipe, weighs: bool) -> None:
    assert recipe.weighs is weighs


def test_a_failing_function_is_named_with_its_line() -> None:
    error = failure(FunctionRecipe(lambda df: df / 0), df=1)
    line = test_a_failing_function_is_named_with_its_line.__code__.co_firstlineno + 1
    assert tells(error, "'<lambda>'", f"line {line}", "ZeroDivisionError")


def test_a_lost_connection_is_not_the_recipes_fault() -> None:
    def lost(df: object) -> None:
        raise ConnectionRefusedError("gone")

    with pytest.raises(ConnectionRefusedError):
        FunctionRecipe(lost).build(None, {"df": object()})  # type: ignore[arg-type, dict-item]
    with pytest.raises(ConnectionRefusedError):
        PythonRecipe("lost(1)", {"lost": lost}).build(None, {})  # type: ignore[arg-type]
    raise_unless_connection(ValueError("the recipe's own"))


def frame(is_streaming: bool) -> Any:
    return SimpleNamespace(isStreaming=is_streaming)


@pytest.mark.parametrize("body", ["", "rides", "rides.narrow"])
@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_recipe_in_python_runs_over_batches_too(body: str, is_streaming: bool) -> None:
    """As exact figures of past rows need it."""
    rows = frame(is_streaming)
    rows.narrow = frame(is_streaming)
    built = PythonRecipe(body).build(None, {"rides": rows})  # type: ignore[arg-type]
    assert built.isStreaming is is_streaming


def test_a_recipe_in_python_makes_no_batch_of_a_stream_or_of_nothing() -> None:
    rows = frame(True)
    rows.narrow = frame(False)
    failure(PythonRecipe("rides.narrow"), rides=rows)
    failure(PythonRecipe("made.narrow", {"made": rows}))
