"""Recordings replay under every policy, those older than a policy too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qod_magics.commands.plan import main
from qod_magics.controller.plan_check import check_plan
from qod_magics.core.json_form import plan_from_json, snapshot_from_json
from qod_magics.policies import SHEDDING, policy_names

RECORDED = Path(__file__).parents[1] / "recorded" / "taxi_drives.jsonl"


@pytest.mark.parametrize("name", policy_names())
def test_a_recorded_run_replays(name, capsys):
    """Each line gives a complete plan; that of a policy that sheds nothing keeps all rows."""
    assert main([str(RECORDED), "--policy", name]) == 0
    lines = RECORDED.read_text("utf-8").splitlines()
    plans = [plan_from_json(json.loads(line)) for line in capsys.readouterr().out.splitlines()]
    assert len(plans) == len(lines)
    for line, plan in zip(lines, plans, strict=True):
        check_plan(plan, snapshot_from_json(json.loads(line)["snapshot"]))
    sheds = any(value < 1 for plan in plans for value in plan.desired.values())
    assert sheds == (name in SHEDDING)
