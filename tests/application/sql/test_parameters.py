"""Variables of the notebook in SQL texts."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from qod_magics.application.sql.parameters import parameters_of
from qod_magics.errors import ApplicationError

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def values(sql: str, **given: Any) -> dict[str, Any]:
    return {each.name: each.value for each in parameters_of(sql, given, whose="a variable of the notebook")}


def refusal(sql: str, **given: Any) -> str:
    with pytest.raises(ApplicationError) as caught:
        values(sql, **given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM trips WHERE fare>:x",
        "SELECT * FROM trips WHERE fare IN (:x)",
        "SELECT * FROM trips WHERE fare IN :x",
        "SELECT :x::double, a::int, a[1] FROM trips",
        "SELECT CAST(a AS STRUCT<b:INT, c: INT>), '10:30', ':y' FROM trips LIMIT :x -- {z} :z",
        "FROM trips |> WHERE fare > :x",
    ],
)
def test_a_name_after_a_colon_is_a_parameter(sql: str) -> None:
    assert values(sql, x=3, z=4) == {"x": 3}


@pytest.mark.parametrize(
    ("given", "value"),
    [
        *((each, each) for each in (True, 3, 2.5, "é'", b"x", None, Decimal("1.50"), date(2024, 1, 1), NOON)),
        (timedelta(minutes=5), timedelta(minutes=5)),
        ((1, 2), [1, 2]),
        (range(3), [0, 1, 2]),
        ({3, 1}, [1, 3]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        ({"a": 1}, {"a": 1}),
        (np.int64(3), 3),
        (np.datetime64("2024-01-01T12:00"), datetime(2024, 1, 1, 12)),
        (np.arange(3), [0, 1, 2]),
        (pd.Series([1.5, 2.0]), [1.5, 2.0]),
        (pd.Timestamp(NOON), NOON),
        (pd.Timedelta(minutes=5), timedelta(minutes=5)),
        (pd.NaT, None),
    ],
)
def test_values_are_those_of_pythons_own_types(given: Any, value: Any) -> None:
    found = values("SELECT :x", x=given)["x"]
    assert found == value
    assert type(found) is type(value)


def test_values_are_those_of_now_and_two_are_equal_by_type_and_value() -> None:
    zones = [1, 2]
    before = parameters_of("SELECT :zones", {"zones": zones}, whose="")
    zones.append(3)
    assert before[0].value == [1, 2]
    assert before != parameters_of("SELECT :zones", {"zones": zones}, whose="")
    assert before == parameters_of("SELECT :zones", {"zones": (1, 2)}, whose="")
    assert hash(before) == hash(parameters_of("SELECT :zones", {"zones": (1, 2)}, whose=""))
    one, other = (parameters_of("SELECT :x", {"x": x}, whose="") for x in (1, 1.0))
    assert one != other


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("SELECT * FROM trips WHERE fare > {threshold}", "{threshold}"),
        ("SELECT * FROM trips WHERE fare > {{ threshold }}", "{{ threshold }}"),
        ("SELECT * FROM trips WHERE fare > $threshold", "$threshold"),
        ("SELECT * FROM trips WHERE fare > ${threshold}", "${threshold}"),
        ("SELECT * FROM trips WHERE fare > {threshold + 1}", "{threshold + 1}"),
        ("SELECT * FROM trips WHERE name = '{{threshold}}'", "'{{threshold}}'"),
        ("SELECT * FROM trips WHERE name = '$threshold'", "'$threshold'"),
        ("SELECT * FROM trips WHERE name = ':threshold'", "':threshold'"),
    ],
)
def test_other_spellings_are_told_the_right_one(sql: str, written: str) -> None:
    said = refusal(sql, threshold=30)
    assert ":threshold" in said
    assert said.endswith(written)


@pytest.mark.parametrize("text", [r"'^\d{3}$'", "'{other}'", "'$.a'", "'cost: $x'", "${spark.sql.shuffle.partitions}"])
def test_text_that_only_looks_like_a_variable_is_left(text: str) -> None:
    assert values(f"SELECT {text}", threshold=30, x=1) == {}


def test_a_name_without_a_value_and_a_value_that_is_none_are_refused() -> None:
    assert "'threshold'" in refusal("SELECT :thresold", threshold=30)
    assert "got a DataFrame" in refusal("SELECT :trips", trips=pd.DataFrame())
    assert "got a SimpleNamespace" in refusal("SELECT :trips", trips=[SimpleNamespace()])
