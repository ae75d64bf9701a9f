"""The plans of Stream Economics against cases worked out by hand from the thesis and the paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qod_magics.core.json_form import plan_to_json, snapshot_from_json
from qod_magics.core.load import current_accuracy
from qod_magics.policies import policy

ORACLES = Path(__file__).parents[2] / "recorded" / "stream_economics_oracles.jsonl"
CASES = [json.loads(line) for line in ORACLES.read_text(encoding="utf-8").splitlines()]


def by_edge(plan: dict[str, Any]) -> dict[tuple[str | None, str], float]:
    return {(row["from"], row["to"]): row["d"] for row in plan["non_drop"]}


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_agrees_with_the_oracle(case: dict[str, Any]) -> None:
    snapshot = snapshot_from_json(case["snapshot"])
    plan, _ = policy("stream-economics").decide(snapshot, None)
    got, expected = plan_to_json(plan, current_accuracy(snapshot)), case["plan"]
    assert got["current_accuracy"] == pytest.approx(expected["current_accuracy"], abs=1e-9)
    assert got["desired"] == pytest.approx(expected["desired"], abs=1e-9)
    assert by_edge(got) == pytest.approx(by_edge(expected), abs=1e-9)
    assert len(got["non_drop"]) == len(expected["non_drop"])
    assert {key: got[key] for key in ("fail", "place", "starved")} == {
        key: expected[key] for key in ("fail", "place", "starved")
    }
