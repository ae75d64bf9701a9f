"""What recipes take of the notebook: functions over the values that they read when the cell ran."""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions
from pyspark.sql.types import IntegerType, StringType
from pyspark.sql.udf import UserDefinedFunction

from qod_magics.application.recipes.capture import Capture, on_session, same


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of a module."""

    @functools.wraps(function)
    def around(*given: Any) -> Any:
        return function(*given)

    return around


def udf(function: Callable[..., Any]) -> Any:
    """What `F.udf` makes."""
    return UserDefinedFunction(function, IntegerType())._wrapped()


NOTEBOOK = """
LIMIT, LIMITS = 10, [1, 2]

def inner(x):
    return x + LIMIT

def plain(x):
    return inner(x)

def recursive(n):
    return LIMIT if n == 0 else recursive(n - 1)

def with_defaults(x, more=[3], *, last=inner):
    return x, LIMIT, more, last(x)

def maker(k):
    def closed(n):
        return LIMIT + k if n == 0 else closed(n - 1)
    return closed

closed = maker(100)
counting = lambda x: sum(LIMITS) + x
in_a_comprehension = lambda x: [LIMIT for _ in range(x)]
wrapped = decorated(plain)
bound = functools.partial(plain, 1)
cached = functools.cache(inner)
steps = [plain, {"second": (inner,)}]
made = udf(inner)
uses_udf = lambda x: made.func(x)
"""


def notebook() -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "__main__", "functools": functools, "decorated": decorated, "udf": udf}
    exec(NOTEBOOK, space)
    return space


USES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda f: f(1),
    "recursive": lambda f: f(3),
    "with_defaults": lambda f: f(1),
    "closed": lambda f: f(3),
    "counting": lambda f: f(1),
    "in_a_comprehension": lambda f: f(2),
    "wrapped": lambda f: f(1),
    "bound": lambda f: f(),
    "cached": lambda f: f(1),
    "steps": lambda steps: (steps[0](1), steps[1]["second"][0](1)),
    "made": lambda f: f._unwrapped.func(1),
    "uses_udf": lambda f: f(1),
}


@pytest.mark.parametrize(("name", "use"), USES.items(), ids=list(USES))
def test_a_function_of_the_notebook_reads_what_it_read_when_it_was_taken(name: str, use: Callable[[Any], Any]) -> None:
    space = notebook()
    before = use(space[name])
    taken, again = Capture().of(space[name]), Capture().of(space[name])
    assert same(taken, again)
    space["LIMIT"] = 50
    space["LIMITS"].append(3)
    space["inner"] = None
    assert use(taken) == before
    assert not same(taken, Capture().of(space[name])), "it would make something else now"


@pytest.mark.parametrize("name", list(USES))
def test_what_is_defined_anew_in_the_same_words_is_the_same(name: str) -> None:
    space, again = notebook(), notebook()
    exec("\n\n" + NOTEBOOK, again)  # further down in its cell
    assert same(Capture().of(space[name]), Capture().of(again[name]))
    again["LIMIT"], again["LIMITS"] = 11, [1, 2.0]
    assert not same(Capture().of(space[name]), Capture().of(again[name]))


def test_other_code_constants_defaults_and_closures_are_not_the_same() -> None:
    def made(source: str, **values: Any) -> Any:
        return Capture().of(eval(source, {"__name__": "__main__", **values}))

    f = made("lambda x: x + 1")
    assert same(f, made("lambda x: x + 1"))
    for other in ("lambda x: x + 2", "lambda x: x + 1.0", "lambda x: x - 1", "lambda x, y=0: x + 1", "lambda y: y + 1"):
        assert not same(f, made(other))
    assert not same(made("lambda x, y=1: x"), made("lambda x, y=2: x"))
    assert not same(made("(lambda k: lambda x: k)(1)"), made("(lambda k: lambda x: k)(2)"))
    assert not same(made("lambda x: y", y=object()), made("lambda x: y", y=object()))
    assert not same(made("lambda x: y"), made("lambda x: y", y=1))


def test_a_taken_function_is_the_same_but_for_its_globals() -> None:
    space: dict[str, Any] = {"__name__": "__main__", "Row": int}
    exec("def f(x: 'Row', *, n: int = 2) -> 'Row':\n    'It adds.'\n    return x + n\nf.unit = 's'", space)
    f, taken = space["f"], Capture().of(space["f"])
    assert taken is not f
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__kwdefaults__"):
        assert getattr(taken, attribute) == getattr(f, attribute)
    assert (taken.unit, vars(taken)) == ("s", vars(f))
    assert taken.__globals__["Row"] is int, "annotations are read by pandas UDFs"


def test_functions_of_modules_classes_and_objects_stay_as_they_are() -> None:
    space = notebook()
    exec("class Limits:\n    least = 1\ndynamic = lambda: globals()['LIMIT']", space)
    limits = space["Limits"]()
    for value in (math.sqrt, decorated, functools.wraps, space["Limits"], limits, math, space["dynamic"]):
        assert Capture().of(value) is value
    plain = decorated(math.sqrt)
    assert Capture().of(plain) is plain
    nested = [limits]
    assert Capture().of(nested) is nested


def test_a_value_that_is_taken_twice_is_one() -> None:
    space = notebook()
    capture = Capture()
    numbers = capture.of(space["LIMITS"])
    assert numbers is not space["LIMITS"]
    assert capture.of(space["counting"]).__globals__["LIMITS"] is numbers
    assert capture.of(space["plain"]).__globals__["inner"] is capture.of(space["inner"])
    assert {name for _, name in capture.behind} == {"LIMIT", "LIMITS", "inner"}


def test_functions_of_two_name_spaces_keep_theirs() -> None:
    one, other = notebook(), notebook()
    other["LIMIT"] = 90
    capture = Capture()
    assert (capture.of(one["plain"])(1), capture.of(other["plain"])(1)) == (11, 91)
    assert sorted(value for (_, name), value in capture.behind.items() if name == "LIMIT") == [10, 90]


def test_what_holds_itself_is_taken() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("f = lambda: LIMIT\nLIMIT = 1\nall = [f]\nall.append(all)\nf.all = all", space)
    taken, again = Capture().of(space["all"]), Capture().of(space["all"])
    assert taken[1] is taken
    assert taken[0].all is taken
    assert same(taken, again)


def test_it_reaches_python_workers_with_its_values() -> None:
    space = notebook()
    taken = Capture().of(space["recursive"])
    space["LIMIT"] = 50
    assert pickle.loads(cloudpickle.dumps(taken))(2) == 10


CELLS_BEFORE = (
    "made = F.udf(f, StringType())",
    "made = F.udf(returnType=StringType())(f)",
    "made = F.udf(f, StringType()).asNondeterministic()",
    "made = F.pandas_udf(vector, StringType())",
    "made = F.udf(len, IntegerType())",
)


@pytest.mark.parametrize("cell", CELLS_BEFORE)
def test_udfs_made_before_connect_mode_become_connects(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A classic one would look for a classic session."""
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
    space: dict[str, Any] = {"__name__": "__main__", "F": functions, "StringType": StringType, "pd": pd}
    exec("def f(x): return f'f {x}'\ndef vector(x: pd.Series) -> pd.Series: return x", space)
    exec(f"from pyspark.sql.types import IntegerType\n{cell}\ndef use(df): return made('x')", space)
    made = space["made"]
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    capture = Capture()
    for found in (capture.of(made)("x"), capture.of([made])[0]("x"), capture.of(space["use"])(None)):
        assert type(found).__module__ == "pyspark.sql.connect.column"
        udf = found._expr
        assert udf._function._output_type == made.returnType
        assert udf._function._eval_type == made.evalType
        assert udf._deterministic == made.deterministic
    assert same(capture.of(made), Capture().of(made))
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED")
    back = Capture().of(capture.of(made))
    (classic,) = [cell.cell_contents for cell in back.__closure__ if hasattr(cell.cell_contents, "evalType")]
    assert type(classic) is UserDefinedFunction


def test_a_recipe_has_the_session_that_it_is_built_on() -> None:
    """Whatever a function of the notebook calls `spark`."""

    class SparkSession:
        pass

    SparkSession.__module__ = "pyspark.sql.connect.session"
    theirs, ours = SparkSession(), SparkSession()
    space: dict[str, Any] = {"__name__": "__main__", "spark": theirs, "also": theirs}
    exec("def inner(): return also\ndef outer(): return [spark, inner()]", space)
    captured = Capture().of(space["outer"])
    assert captured() == [theirs, theirs]
    assert on_session({"f": captured, "s": theirs, "l": [theirs]}, ours)["f"]() == [ours, ours]
    assert on_session({"s": theirs, "l": [theirs]}, ours) == {"s": ours, "l": [ours]}
    assert captured() == [theirs, theirs]
