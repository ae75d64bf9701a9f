"""When a batch over past rows is planned again."""

from __future__ import annotations

import json

import pytest

from qod_magics.errors import ApplicationError
from qod_magics.formats import schema_registry
from qod_magics.formats.avro import Avro
from qod_magics.spark.plans.batch import PLANS, planned
from qod_magics.spark.plans.pipeline import Feed
from tests.formats.registry_server import Registry, served

AVRO = {"type": "record", "name": "T", "fields": [{"name": "a", "type": "int"}]}


def feed(registry: Registry) -> Feed:
    form = Avro(json.dumps(AVRO), registry.url, "t-value")
    return Feed("q", ("q",), "t", (0,), {0: 0}, "a INT", False, form)


def test_a_batch_is_planned_again_for_each_schema_that_its_plan_does_not_know() -> None:
    with served() as registry:
        registry.register("t-value", AVRO)
        older = [registry.register(None, AVRO) for _ in range(3)]
        known = schema_registry.written(registry.url, "t-value")
        plans: list[list[int]] = []

        def attempt() -> str:
            known.look()  # as each plan does
            plans.append(list(known.known))
            if missing := [id for id in older if id not in known.known]:
                raise RuntimeError(f"[USER_RAISED_EXCEPTION] no plan for the Avro schema {missing[0]} of t-value")
            return "rows"

        assert planned(attempt, [feed(registry)]) == "rows"
        assert [len(each) for each in plans] == [1, 2, 3, 4]


def test_a_batch_that_always_fails_is_planned_so_often_only() -> None:
    with served() as registry:
        tries = []

        def attempt() -> None:
            tries.append(1)
            raise RuntimeError("[USER_RAISED_EXCEPTION] no plan for the Avro schema 7 of t-value")

        with pytest.raises(RuntimeError):
            planned(attempt, [feed(registry)])
        assert len(tries) == PLANS


def test_another_failure_of_a_batch_is_raised_at_once() -> None:
    tries = []

    def attempt() -> None:
        tries.append(1)
        raise ApplicationError("other")

    with served() as registry, pytest.raises(ApplicationError):
        planned(attempt, [feed(registry)])
    assert len(tries) == 1
