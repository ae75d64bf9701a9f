"""The cases of the source and around it, with exact numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmarks.evaluation.convergence import Proportional
from qod_magics.policies.stela.job import Edge, Graph, Job, Options

DATA = Path(__file__).parent / "data"


def oracle(id: str) -> dict[str, Any]:
    """The case of this id, such as "S1"."""
    (path,) = DATA.glob(f"{id.lower()}_*.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def edge(name: str) -> Edge:
    source, target = name.split(">")
    return source, target


def exact(values: Mapping[str, Any]) -> dict[str, Fraction]:
    return {key: Fraction(value) for key, value in values.items()}


def graph_of(case: Mapping[str, Any]) -> Graph:
    return Graph(tuple(case["ops"]), tuple((source, target) for source, target in case["edges"]))


def job_of(case: Mapping[str, Any]) -> Job:
    """The job of a case that gives rates."""
    return Job(
        graph_of(case),
        exact(case["proc"]),
        {edge(name): Fraction(rate) for name, rate in case["emit"].items()},
        exact(case.get("external_input", {})),
        case.get("instances", {}),
    )


def options_of(case: Mapping[str, Any], **more: Any) -> Options:
    return Options(Fraction(case["congestion_rate"]), **more)


def example(instances: int = 1) -> Job:
    """The source's example, S1, with `instances` instances of each operator."""
    job = job_of(oracle("S1"))
    return replace(job, instances=dict.fromkeys(job.graph.ops, instances))


def scenarios() -> list[dict[str, Any]]:
    """The calibrated scenarios of S9."""
    found: list[dict[str, Any]] = oracle("S9")["cases"]
    return found


def model_of(case: Mapping[str, Any]) -> Proportional:
    return Proportional(
        graph_of(case),
        exact(case["offered"]),
        exact(case["r"]),
        {edge(name): Fraction(ratio) for name, ratio in case.get("sel", {}).items()},
    )
