"""Which cycles begin and end an alarm."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.core.plan import Stop
from qod_magics.core.runtime import Event
from qod_magics.core.snapshot import Snapshot, replace
from qod_magics.errors import LostError
from qod_magics.monitoring.alarms import ALARMS, MISSES, SILENT_S, Alarm, Alarms
from tests.controller.scripted import Bench, FixedPolicy, bench, chain, seen


def watched(*script: Any, policy: Any = None, cycles: int) -> tuple[list[Alarm], Alarms, Bench]:
    """So many cycles over a script, and the alarms that they brought."""
    found: list[Alarm] = []
    b = bench(*script, policy=policy or FixedPolicy())
    alarms = Alarms(b.clock.monotonic())
    b.controller.subscribe(lambda cycle: found.extend(alarms.take(cycle, b.clock.monotonic())))
    b.cycles(cycles)
    return found, alarms, b


def told(alarms: list[Alarm]) -> list[tuple[str, str, bool]]:
    return [(each.kind, each.subject, each.over) for each in alarms]


def latency(p95_s: float | None, target_s: float | None = 1.0) -> Snapshot:
    snapshot = chain()
    source, sink = snapshot.tasks
    return replace(snapshot, tasks=(source, replace(sink, latency_p95_s=p95_s, max_latency_s=target_s)))


def with_state(state: str) -> Snapshot:
    snapshot = chain()
    source, sink = snapshot.instances
    return replace(snapshot, instances=(source, replace(sink, state=state)))


def test_nothing_is_told_while_all_is_well() -> None:
    found, alarms, _ = watched(seen(latency(0.5)), cycles=5)
    assert found == []
    assert alarms.open == {}


def test_a_starved_task_manager_begins_and_ends_one_alarm() -> None:
    policy = FixedPolicy(starved=("tm1",))
    found, alarms, b = watched(policy=policy, cycles=3)
    assert told(found) == [("starved", "tm1", False)]
    assert found[0].detail == {"minimum": {"Snk": 0.4}, "planned": {"Snk": 1.0}}
    assert alarms.open["starved", "tm1"].since == 0.0
    policy.more = {}
    b.cycles(2)
    assert told(found)[1:] == [("starved", "tm1", True)]
    assert alarms.open == {}


def test_an_instance_that_was_given_up_is_told_with_the_cause() -> None:
    event = Event("query-failed", {"instance": "Snk.1", "why": "divided by 0", "gave_up": True, "failures": 8})
    gone = with_state("given up")
    found, alarms, _ = watched(seen(), seen(gone, event), seen(gone), seen(gone), seen(), cycles=4)
    assert told(found) == [("given-up", "Snk.1", False)]
    assert found[0].detail == {"query": "Snk", "why": "divided by 0"}
    assert alarms.open["given-up", "Snk.1"].alarm.detail["why"] == "divided by 0"


def test_an_instance_that_a_plan_stops_is_told_with_the_reason_until_it_starts_again() -> None:
    event = Event("stop", {"instance": "Snk.1", "why": "no room"})
    stopped = with_state("suspended")
    found, alarms, b = watched(seen(), seen(stopped, event), seen(stopped), seen(), cycles=3)
    assert told(found) == [("suspended", "Snk.1", False)]
    assert found[0].detail == {"query": "Snk", "why": "no room"}
    assert alarms.open["suspended", "Snk.1"].alarm is found[0]
    b.cycles(1)
    assert told(found)[1:] == [("suspended", "Snk.1", True)]
    early, _, _ = watched(seen(stopped), policy=FixedPolicy(actions=(Stop("Snk.1", "no room"),)), cycles=1)
    assert early[0].detail["why"] == "no room"  # its run has not ended yet


def test_one_that_starts_again_ends_the_alarm() -> None:
    found, _, _ = watched(seen(with_state("given up")), seen(), cycles=2)
    assert told(found) == [("given-up", "Snk.1", False), ("given-up", "Snk.1", True)]


def test_one_that_backs_off_is_no_alarm() -> None:
    assert watched(seen(with_state("backing off")), cycles=3)[0] == []


def test_a_target_is_missed_after_some_cycles_and_met_after_some() -> None:
    steps = [*[latency(2.0)] * (MISSES + 2), latency(None), *[latency(0.5)] * (MISSES + 1)]
    found, _, b = watched(*map(seen, steps), cycles=MISSES - 1)
    assert found == []
    b.cycles(1)
    assert told(found) == [("target-missed", "Snk", False)]
    assert found[0].detail == {"p95_s": 2.0, "target_s": 1.0}
    b.cycles(2 + MISSES)  # the last of these is one too few
    assert len(found) == 1
    b.cycles(1)
    assert told(found)[1:] == [("target-missed", "Snk", True)]


def test_latencies_around_the_target_are_told_once() -> None:
    steps = [*[latency(2.0)] * MISSES, *[latency(0.5), latency(2.0)] * 5]
    assert told(watched(*map(seen, steps), cycles=len(steps))[0]) == [("target-missed", "Snk", False)]


def test_a_target_that_is_taken_away_ends_the_alarm() -> None:
    steps = [*[latency(2.0)] * MISSES, latency(2.0, None)]
    assert [each.over for each in watched(*map(seen, steps), cycles=len(steps))[0]] == [False, True]


def test_deleted_rows_are_told_each_time_and_never_open() -> None:
    event = Event("rows-deleted", {"topic": "trips", "task": "Src", "rows": 3, "why": "3 rows were deleted"})
    found, alarms, _ = watched(seen(None, event), seen(None, event), seen(), cycles=3)
    assert told(found) == [("rows-deleted", "trips", False)] * 2
    assert found[0].detail["rows"] == 3
    assert alarms.open == {}


def test_a_controller_without_decisions_is_silent_until_the_next() -> None:
    lost = LostError("tm1 is gone")
    found, alarms, b = watched(seen(with_state("given up")), *[lost] * 20, seen(), cycles=5)
    assert told(found) == [("given-up", "Snk.1", False)]
    assert alarms.tick(SILENT_S, b.clock.wall()) == ()
    begun = alarms.tick(SILENT_S + 1.0, b.clock.wall())
    assert told(list(begun)) == [("controller-silent", "controller", False)]
    assert alarms.tick(SILENT_S + 9.0, b.clock.wall()) == (), "it is told once"
    assert ("given-up", "Snk.1") in alarms.open, "cycles without a decision end nothing"
    b.cycles(18)
    assert told(found)[1:] == [("controller-silent", "controller", True), ("given-up", "Snk.1", True)]


def test_a_session_that_never_decides_is_silent_too() -> None:
    alarms = Alarms(100.0)
    assert alarms.tick(100.0 + SILENT_S, bench().clock.wall()) == ()
    (begun,) = alarms.tick(101.0 + SILENT_S, bench().clock.wall())
    assert begun.kind == "controller-silent"


def test_slow_periods_are_given_more_time() -> None:
    alarms = Alarms(0.0)
    b = bench(period_s=60.0)
    alarms.take(b.controller.step(), 0.0)
    assert alarms.tick(350.0, b.clock.wall()) == ()
    assert len(alarms.tick(361.0, b.clock.wall())) == 1


@pytest.mark.parametrize("over", [False, True])
def test_the_json_form_has_everything(over: bool) -> None:
    alarm = Alarm("starved", "tm1", "why", bench().clock.wall(), over, {"x": 1})
    assert alarm.to_json() == {
        "kind": "starved",
        "subject": "tm1",
        "words": "why",
        "at": "2026-01-01T00:00:00+00:00",
        "over": over,
        "detail": {"x": 1},
    }
    assert alarm.kind in ALARMS
