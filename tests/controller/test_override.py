"""A non-drop probability held by hand: what the dials say then, and the way back."""

from __future__ import annotations

import pytest

from qod_magics.controller.dials import overridden
from qod_magics.core.runtime import Dials
from qod_magics.errors import UsageProblem
from tests.controller.scripted import FixedPolicy, bench, chain, seen
from tests.raising import breaks

HALF = Dials({(None, "Src"): 0.5, ("Src", "Snk"): 1.0}, {"Src": 0.5, "Snk": 0.5})


def test_only_the_shedder_in_hand_changes():
    held = overridden(HALF, {(None, "Src"): 0.9}, chain())
    assert held.keep == {(None, "Src"): 0.9, ("Src", "Snk"): 1.0}
    assert held.accept == HALF.accept


def test_a_reader_accepts_what_a_stream_held_open_brings():
    shut = Dials({(None, "Src"): 0.8, ("Src", "Snk"): 0.25}, {"Src": 0.8, "Snk": 0.2})
    held = overridden(shut, {("Src", "Snk"): 0.5}, chain())
    assert held.accept["Snk"] == pytest.approx(0.4)
    closed = overridden(shut, {("Src", "Snk"): 0.1}, chain())
    assert closed.accept["Snk"] == 0.2  # what comes is thinner than that already


def test_the_loop_holds_it_says_so_and_gives_it_back():
    loop = bench(policy=FixedPolicy(0.5))
    loop.cycles(1)
    loop.controller.override((None, "Src"), 0.75)
    (cycle,) = loop.cycles(1)
    assert cycle.decision.dials.keep[None, "Src"] == 0.75
    assert cycle.plan.non_drop[None, "Src"] == 0.5  # the plan still says what the policy wants
    assert [event.detail["d"] for event in cycle.events if event.kind == "override"] == [0.75]
    loop.controller.override((None, "Src"), None)
    (cycle,) = loop.cycles(1)
    assert cycle.decision.dials.keep[None, "Src"] == 0.5
    assert not loop.controller.overrides


def test_those_of_streams_that_are_gone_are_given_back():
    controller = bench().controller
    controller.override((None, "Src"), 0.5)
    controller.override(("Src", "Snk"), 0.25)
    controller.release(["Src"])
    assert controller.overrides == {(None, "Src"): 0.5}
    controller.release([])
    assert controller.overrides == {}


@pytest.mark.parametrize("d", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(d):
    with pytest.raises(UsageProblem, check=breaks("between 0 and 1")):
        bench().controller.override((None, "Src"), d)


def test_why_names_the_hand_that_holds_a_shedder_not_a_backlog():
    loop = bench(seen(lag={"Src": 312}, input_rate={"Src": 1000.0}), policy=FixedPolicy(1.0))
    loop.controller.override((None, "Src"), 0.25)
    loop.cycles(2)
    said = loop.controller.why("Src")
    assert "the shedder Src keeps 0.25, by hand" in said
    assert "drained" not in said
