"""The stages of the policy as text, of a controller that runs."""

from __future__ import annotations

import pytest

from qod_magics.controller import Controller, InlineWorker, ManualClock
from qod_magics.policies import policy
from qod_magics.session.decisions import stages_text
from tests.controller.toy import Toy
from tests.texts import tells

PERIOD_S = 5.0
STAGES = ("place", "scale", "lend", "judge", "shed")
IDLE = ["policy auto", *(f"  {stage}: nothing to do" for stage in STAGES)]


class Loop:
    def __init__(self, name, rate):
        clock = ManualClock()
        self.toy = Toy(clock, lambda _: rate, 0.2)
        self.controller = Controller(self.toy, policy(name), clock=clock, worker=InlineWorker, period_s=PERIOD_S)

    def run(self, periods):
        """The lines of the text after these periods."""
        for _ in range(periods):
            self.toy.run(PERIOD_S)
            self.controller.step()
        return stages_text(self.controller).splitlines()


def test_before_the_first_cycle_nothing_is_done():
    *stages, slices = Loop("auto", 3000.0).run(0)
    assert stages == IDLE
    assert tells(slices, "slices of 60 s")


def test_each_stage_has_a_line_that_follows_the_plan():
    loop = Loop("auto", 3000.0)
    shed = []
    for _ in range(20):
        lines = loop.run(1)
        assert tuple(line.split(":")[0].strip() for line in lines[1:-1]) == STAGES
        desired = loop.controller.last.plan.desired["Snk"]
        if desired < 0.99:
            shed.append(desired)
            assert tells(lines[-2], "shed", "Snk", f"{desired:.2f}")
    assert shed


def test_a_paused_stage_says_so():
    loop = Loop("auto", 500.0)
    loop.controller.adjust(loop.controller.policy.pausing("scale"))
    assert loop.run(1)[2] == "  scale: paused"


@pytest.mark.parametrize("periods", [0, 2])
def test_a_policy_without_stages_is_named(periods):
    assert Loop("stream-economics", 500.0).run(periods) == ["policy stream-economics"]
