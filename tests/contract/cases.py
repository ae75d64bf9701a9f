"""What a Runtime owes the controller, whichever it is. Rates and shares are held to bands, books to the row."""

from __future__ import annotations

from math import sqrt

import pytest

from qod_magics.core.plan import AddNode, Fuse, Move, Plan, ReleaseNode, Scale, SetBatch, Stop, Unfuse
from qod_magics.core.runtime import Count, Dials, Observation
from qod_magics.errors import QodError
from tests.contract.harness import (
    LEFT,
    MIN_ACCURACY,
    PRIORITY,
    RIGHT,
    SOURCE,
    STREAMS,
    TASKS,
    Harness,
    Watch,
    home,
    instance,
    managers,
)

TO_LEFT, TO_RIGHT = (f"{a}>{b}" for a, b in STREAMS)
#: Cases after which a cluster is no longer what it was: they get one of their own.
BREAKING = frozenset({"test_a_lost_task_manager_s_instances_go_on_elsewhere"})
#: Cases for a cluster that may start task managers.
GROWING = frozenset({"test_a_plan_starts_a_task_manager_and_releases_it"})
#: How far a measured rate may be off, as a fraction of it.
BAND = 0.15
#: Periods after which a turned dial shows in every measure: the batch under way ends, one more is reported.
FOLLOWS_PERIODS = 3.0


class RuntimeContract:
    """The cases; a subclass has a `watch` fixture with its harness."""

    def test_what_was_never_measured_is_missing_and_not_a_measured_0(self, watch: Watch) -> None:
        harness = watch.harness
        harness.feed(harness.rate)
        watch.start()
        for fresh, each in watch.first.values():
            assert not fresh
            assert {"in_rate", "cpu"} <= set(each.missing), each
        seen = watch.fresh()
        assert watch.measured_0 == []
        for each in seen.snapshot.instances:
            assert each.in_rate == pytest.approx(harness.rate, rel=0.5), each

    def test_what_is_there_is_shown_with_its_rates_and_nothing_is_dropped(self, watch: Watch) -> None:
        harness = watch.harness
        watch.start()
        for rate in (harness.rate, 2 * harness.rate):
            harness.feed(rate)
            watch.wait(2 * harness.period_s)
            seen = watch.until(
                lambda o, rate=rate: (
                    all(o.fresh.values())  # type: ignore[misc]
                    and all(i.in_rate == pytest.approx(rate, rel=BAND) for i in o.snapshot.instances)
                ),
                harness.start_s,
                f"{rate} rows/s at every instance",
            )
            tasks = {task.id: task for task in seen.snapshot.tasks}
            assert tasks[SOURCE].external_rate == pytest.approx(rate, rel=BAND)
            assert seen.measured.input_rate[SOURCE] == pytest.approx(rate, rel=BAND)
            for stream in seen.snapshot.streams:
                assert stream.out_rate == pytest.approx(rate, rel=BAND)
        assert tasks[SOURCE].upstream == ()
        assert tasks[SOURCE].priority is tasks[SOURCE].min_accuracy is None
        for query in (LEFT, RIGHT):
            assert tasks[query].upstream == (SOURCE,)
            assert tasks[query].external_rate is None
            assert (tasks[query].priority, tasks[query].min_accuracy) == (PRIORITY[query], MIN_ACCURACY[query])
        assert all(i.cpu > 0 for i in seen.snapshot.instances)
        assert sum(m.cpu for m in seen.snapshot.task_managers) > 0
        assert all(m.cores > 0 for m in seen.snapshot.task_managers)
        assert seen.measured.accuracy == dict.fromkeys(TASKS, 1.0)
        counts = watch.drained()
        rows = Count(harness.sent, harness.sent, 0, 0)
        assert counts == {SOURCE: rows, TO_LEFT: rows, TO_RIGHT: rows}
        assert set(watch.look().measured.dropped.values()) == {0}

    def test_dials_act_within_a_period_and_drop_their_share(self, watch: Watch) -> None:
        """Measured on rows that all come a period after the turn, so that the shares are exact but for chance."""
        harness = watch.harness
        watch.start()
        harness.feed(harness.rate)
        watch.wait(harness.period_s)
        before = watch.drained()
        dropped_before = watch.look().measured.dropped
        for source, left, right, accept in ((0.5, 0.6, 1.0, 0.15), (1.0, 1.0, 0.3, 1.0), (0.0, 1.0, 1.0, 1.0)):
            watch.turn(source, left, right, accept)
            watch.wait(harness.period_s)
            harness.feed(harness.rate)
            watch.wait(2 * harness.period_s)
            after = watch.drained()
            dropped = watch.look().measured.dropped
            new = {name: _minus(after[name], before[name]) for name in after}
            unsent = {name: dropped[name] - dropped_before[name] - new[name].dropped for name in (TO_LEFT, TO_RIGHT)}
            _share(new[SOURCE].processed, new[SOURCE].arrived, source)
            assert dropped[SOURCE] - dropped_before[SOURCE] == new[SOURCE].dropped
            for name, sending in ((TO_LEFT, left), (TO_RIGHT, right)):
                assert new[name].arrived + unsent[name] == new[SOURCE].processed
                _share(new[name].arrived, new[SOURCE].processed, sending)
            _share(new[TO_LEFT].processed, new[TO_LEFT].arrived, min(accept / max(source * left, 1e-9), 1.0))
            assert new[TO_RIGHT].processed == new[TO_RIGHT].arrived
            assert all(count.unreported == 0 for count in new.values())
            before, dropped_before = after, dropped

    def test_a_turned_dial_shows_in_the_measures(self, watch: Watch) -> None:
        harness, rate = watch.harness, watch.harness.rate
        watch.start()
        harness.feed(rate)
        watch.wait(2 * harness.period_s)
        watch.fresh()
        watch.turn(0.6, 0.5, 1.0, 1.0)
        watch.wait(FOLLOWS_PERIODS * harness.period_s)
        for _ in range(3):
            seen = watch.wait(harness.period_s / 2)
            accuracy = seen.measured.accuracy
            assert accuracy[SOURCE] == pytest.approx(0.6, abs=0.08)
            assert accuracy[LEFT] == pytest.approx(0.3, abs=0.08)
            assert accuracy[RIGHT] == pytest.approx(0.6, abs=0.08)
            assert instance(seen, "src.1").in_rate == pytest.approx(0.6 * rate, rel=2 * BAND)
            assert instance(seen, "left.1").in_rate == pytest.approx(0.3 * rate, rel=2 * BAND)
            out = {stream.target: stream.out_rate for stream in seen.snapshot.streams}
            assert out[LEFT] == out[RIGHT] == pytest.approx(0.6 * rate, rel=2 * BAND)  # before the shedders
        watch.turn()
        watch.wait(FOLLOWS_PERIODS * harness.period_s)
        assert watch.look().measured.accuracy == dict.fromkeys(TASKS, 1.0)

    def test_a_report_of_before_the_rows_came_is_no_rate_of_them(self, watch: Watch) -> None:
        harness = watch.harness
        watch.start()
        watch.wait(2 * harness.period_s)
        harness.feed(harness.rate)

        def comes(seen: Observation) -> bool:
            return seen.measured.input_rate.get(SOURCE, 0.0) > harness.rate / 2

        watch.until(comes, 3 * harness.period_s, "the rows are seen")
        watch.measured_0.clear()
        watch.fresh()
        assert watch.measured_0 == []

    def test_a_plan_moves_an_instance_and_no_row_is_lost(self, watch: Watch) -> None:
        harness = watch.harness
        watch.start()
        harness.feed(harness.rate)
        seen = watch.fresh()
        for moves in (1, 2):
            source = home(seen, "left.1")
            target = next(id for id in managers(seen) if id != source)
            others = {id: home(seen, id) for id in ("src.1", "right.1")}
            watch.turn(move_left=target, why=f"reason {moves}")
            event = watch.event("move", harness.start_s, instance="left.1", to=target)
            assert event["from"] == source
            assert 0 < event["took_s"] < harness.start_s
            assert event["why"] == f"reason {moves}"
            seen = watch.wait(harness.period_s)
            assert home(seen, "left.1") == target
            assert {id: home(seen, id) for id in others} == others
            assert len(watch.of("move")) == moves
            seen = watch.fresh()
        counts = watch.drained()
        rows = Count(harness.sent, harness.sent, 0, 0)
        assert counts == {SOURCE: rows, TO_LEFT: rows, TO_RIGHT: rows}
        assert watch.of("query-failed") == watch.of("query-restarted") == []

    def test_a_query_that_fails_is_told_of_and_starts_again(self, watch: Watch) -> None:
        harness = watch.harness
        watch.start()
        harness.feed(harness.rate)
        where = home(watch.fresh(), "left.1")
        harness.fail("left.1")
        event = watch.event("query-failed", harness.start_s, instance="left.1")
        assert event["task_manager"] == where
        assert event["why"]
        assert event["retry_in_s"] > 0
        event = watch.event("query-restarted", harness.start_s, instance="left.1")
        assert event["task_manager"] == where
        assert event["failures"] >= 1
        assert home(watch.fresh(), "left.1") == where
        counts = watch.drained()
        for name, count in counts.items():
            assert count.processed + count.unreported == count.arrived, name
        assert counts[SOURCE].processed == harness.sent
        assert counts[TO_LEFT].arrived == counts[TO_RIGHT].arrived == harness.sent
        assert watch.of("move") == []

    def test_a_lost_task_manager_s_instances_go_on_elsewhere(self, watch: Watch) -> None:
        harness = watch.harness
        watch.start()
        harness.feed(harness.rate)
        seen = watch.fresh()
        lost = home(seen, "left.1")
        orphans = {i.id for i in seen.snapshot.instances if i.task_manager == lost}
        harness.lose(lost)
        event = watch.event("task-manager-lost", harness.start_s, task_manager=lost)
        assert set(event["instances"]) == orphans
        assert event["why"]
        assert lost not in managers(watch.look())
        for id in orphans:
            move = watch.event("move", harness.start_s, instance=id)
            assert (move["from"], move["to"]) == (lost, home(watch.look(), id))
            assert move["to"] != lost
        seen = watch.fresh()
        assert len(watch.of("move")) == len(orphans)
        assert len(watch.of("task-manager-lost")) == 1
        counts = watch.drained()
        for name, count in counts.items():
            assert count.processed + count.unreported == count.arrived >= harness.sent, name

        last = managers(seen)[0]
        harness.lose(last)
        error = _until_refused(watch)
        assert "\n" not in str(error)
        added = harness.add_task_manager()
        seen = watch.until(
            lambda o: all(i.task_manager == added for i in o.snapshot.instances), harness.start_s, "moved"
        )
        assert watch.of("task-manager-up", task_manager=added)
        assert watch.of("task-manager-lost", task_manager=last)
        harness.feed(harness.rate)
        watch.wait(harness.period_s)
        counts = watch.drained()
        for name, count in counts.items():
            assert count.processed + count.unreported == count.arrived >= harness.sent, name

    def test_a_task_manager_joins_and_leaves(self, watch: Watch) -> None:
        harness = watch.harness
        watch.start()
        harness.feed(harness.rate)
        watch.fresh()
        added = harness.add_task_manager()
        assert watch.event("task-manager-up", harness.start_s, task_manager=added)["cores"] > 0
        assert added in managers(watch.look())
        watch.turn(move_left=added)
        watch.event("move", harness.start_s, instance="left.1", to=added)
        watch.fresh()
        harness.remove_task_manager(added)
        watch.event("task-manager-removed", harness.start_s, task_manager=added)
        watch.event("move", harness.start_s, instance="left.1", **{"from": added})
        seen = watch.fresh()
        assert added not in managers(seen)
        assert home(seen, "left.1") in managers(seen)
        counts = watch.drained()
        rows = Count(harness.sent, harness.sent, 0, 0)
        assert counts == {SOURCE: rows, TO_LEFT: rows, TO_RIGHT: rows}
        assert watch.of("task-manager-lost") == watch.of("query-failed") == []

    def test_a_plan_scales_a_task_out_and_in_and_no_row_is_lost(self, watch: Watch) -> None:
        harness = watch.harness
        if Scale not in harness.runtime.supports:
            pytest.skip("this cluster does not scale tasks")
        watch.start()
        harness.feed(harness.rate)
        seen = watch.fresh()
        most = next(task for task in seen.snapshot.tasks if task.id == LEFT).max_parallelism
        assert most is not None
        assert most >= 2
        for before, after in ((1, 2), (2, 1)):
            others = {id: home(seen, id) for id in ("src.1", "right.1")}
            watch.widths[LEFT] = {before, after}
            target = () if after < before else (managers(seen)[-1],)
            watch.act(Scale(LEFT, after, target, f"reason {after}"))
            event = watch.event("scale", harness.start_s, task=LEFT, to=after)
            assert event["from"] == before
            assert 0 < event["took_s"] < harness.start_s
            assert event["why"] == f"reason {after}"
            watch.widths[LEFT] = {after}
            seen = watch.wait(harness.period_s)
            if target:
                assert home(seen, "left.2") == target[0]
            assert {id: home(seen, id) for id in others} == others
            watch.wait(2 * harness.period_s)
            seen = watch.fresh()
            mine = [i.in_rate for i in seen.snapshot.instances if i.task == LEFT]
            assert len(mine) == after
            assert sum(mine) == pytest.approx(harness.rate, rel=2 * BAND)
        watch.act(Scale(LEFT, int(most) + 1))
        refused = watch.event("action-refused", harness.start_s, task=LEFT)
        assert str(int(most)) in refused["why"]
        assert "\n" not in refused["why"]
        counts = watch.drained()
        rows = Count(harness.sent, harness.sent, 0, 0)
        assert counts == {SOURCE: rows, TO_LEFT: rows, TO_RIGHT: rows}
        assert len(watch.of("scale")) == 2
        assert watch.of("query-failed") == watch.of("move") == []

    def test_a_plan_stops_an_instance_whose_rows_wait_until_it_has_a_place(self, watch: Watch) -> None:
        harness = watch.harness
        watch.start()
        harness.feed(harness.rate)
        seen = watch.fresh()
        here = home(seen, "left.1")
        there = next(id for id in managers(seen) if id != here)
        watch.act(Stop("left.1", "a reason"))
        event = watch.event("stop", harness.start_s, instance="left.1")
        assert (event["task_manager"], event["why"]) == (here, "a reason")
        before = watch.look().measured.counts[TO_LEFT]
        watch.act(Stop("left.1", "a reason"))  # done: that is no event
        seen = watch.wait(2 * harness.period_s)
        assert (instance(seen, "left.1").state, instance(seen, "left.1").cpu) == ("suspended", 0.0)
        now = seen.measured.counts[TO_LEFT]
        assert (now.processed, now.dropped) == (before.processed, before.dropped)
        assert now.waiting > harness.rate * harness.period_s
        watch.act(Move("left.1", there, "another reason"))
        event = watch.event("move", harness.start_s, instance="left.1", to=there)
        assert event["why"] == "another reason"
        assert "from" not in event
        assert home(watch.fresh(), "left.1") == there

        watch.act(Stop("left.1", "a reason"))
        watch.until(lambda _: len(watch.of("stop")) == 2, harness.start_s, "it is stopped again")
        watch.act(Scale(LEFT, 2))  # it does not run
        added = harness.add_task_manager()
        watch.until(lambda _: len(watch.of("move", instance="left.1")) == 2, harness.start_s, "it has a place")
        assert added in watch.of("move", instance="left.1")[1]["why"]
        counts = watch.drained()
        rows = Count(harness.sent, harness.sent, 0, 0)
        assert counts == {SOURCE: rows, TO_LEFT: rows, TO_RIGHT: rows}
        assert [each["action"] for each in watch.of("action-refused")] == ["Scale"]
        assert watch.of("query-failed") == []

    def test_tasks_that_can_t_be_one_query_go_on_as_two(self, watch: Watch) -> None:
        harness = watch.harness
        if not {Fuse, Unfuse} <= harness.runtime.supports:
            pytest.skip("this cluster does not fuse tasks")
        watch.start()
        harness.feed(harness.rate)
        before = watch.fresh()
        for action in (Fuse((SOURCE, LEFT)), Unfuse((SOURCE, LEFT)), Unfuse((LEFT, RIGHT))):
            watch.act(action)
        watch.wait(2 * harness.period_s)
        refused = {(each["action"], each["stream"]): each["why"] for each in watch.of("action-refused")}
        assert set(refused) == {("Fuse", f"{SOURCE}>{LEFT}"), ("Unfuse", f"{LEFT}>{RIGHT}")}  # one is so already
        assert "read src" in refused["Fuse", f"{SOURCE}>{LEFT}"]
        assert all("\n" not in why for why in refused.values())
        seen = watch.fresh()
        assert [task.id for task in seen.snapshot.tasks] == [task.id for task in before.snapshot.tasks]
        counts = watch.drained()
        rows = Count(harness.sent, harness.sent, 0, 0)
        assert counts == {SOURCE: rows, TO_LEFT: rows, TO_RIGHT: rows}
        assert watch.of("fuse") == watch.of("unfuse") == watch.of("query-failed") == []

    def test_a_plan_starts_a_task_manager_and_releases_it(self, watch: Watch) -> None:
        harness = watch.harness
        if not {AddNode, ReleaseNode} <= harness.runtime.supports:
            pytest.skip("this cluster does not start task managers")
        watch.start()
        harness.feed(harness.rate)
        seen = watch.fresh()
        before, spare = managers(seen), seen.snapshot.spares[0]
        watch.act(AddNode(spare.kind, "a reason"))
        left = watch.look().snapshot.spares
        assert sum(each.count for each in left if each.kind == spare.kind) == spare.count - 1
        up = watch.event("task-manager-up", harness.start_s + spare.start_s, why="a reason")
        added = up["task_manager"]
        assert up["cores"] > 0
        assert set(managers(watch.look())) == {*before, added}
        watch.act(Move("left.1", added))
        watch.event("move", harness.start_s, instance="left.1", to=added)
        watch.fresh()
        watch.act(ReleaseNode(added, "another reason"))
        removed = watch.event("task-manager-removed", harness.start_s, task_manager=added)
        assert removed["why"] == "another reason"
        watch.event("move", harness.start_s, instance="left.1", **{"from": added})
        seen = watch.fresh()
        assert set(managers(seen)) == set(before)
        assert seen.snapshot.spares[0] == spare
        watch.act(AddNode("no such kind"), ReleaseNode("tm99"))
        assert "tm99" in watch.event("action-refused", harness.start_s, id="tm99")["why"]
        assert "no such kind" in watch.event("action-refused", harness.start_s, action="AddNode")["why"]
        counts = watch.drained()
        rows = Count(harness.sent, harness.sent, 0, 0)
        assert counts == {SOURCE: rows, TO_LEFT: rows, TO_RIGHT: rows}
        assert watch.of("task-manager-lost") == watch.of("query-failed") == []

    def test_actions_that_can_t_be_carried_out_are_events(self, watch: Watch) -> None:
        harness: Harness = watch.harness
        watch.start()
        assert Move in harness.runtime.supports
        watch.turn(move_left="tm99")
        assert "tm99" in watch.event("action-refused", harness.start_s, instance="left.1")["why"]
        here = home(watch.look(), "left.1")
        nobody = Plan({"nobody": 0.5}, {(None, "nobody"): 0.5}, actions=(Move("nobody.1", here),))
        harness.runtime.apply(nobody, Dials({(None, "nobody"): 0.5, ("nobody", "ever"): 0.5}, {"nobody": 0.5}))
        assert "nobody.1" in watch.event("action-refused", harness.start_s, instance="nobody.1")["why"]
        for _ in range(2):
            watch.act(SetBatch(LEFT, 2.0))
        assert "real-time" in watch.event("action-refused", harness.start_s, task=LEFT)["why"]
        watch.turn(move_left=here)
        harness.feed(harness.rate)
        watch.wait(2 * harness.period_s)
        assert len(watch.of("action-refused", task=LEFT)) == 1
        assert home(watch.fresh(), "left.1") == here
        assert watch.of("move") == watch.of("query-failed") == []
        rows = watch.drained()
        assert all(count.dropped == 0 for count in rows.values())


def _minus(after: Count, before: Count) -> Count:
    return Count(
        after.arrived - before.arrived,
        after.processed - before.processed,
        after.dropped - before.dropped,
        after.waiting - before.waiting,
        after.unreported - before.unreported,
    )


def _share(kept: int, of: int, probability: float) -> None:
    """Within five standard errors of chance: once in two million."""
    assert abs(kept - of * probability) <= 5 * sqrt(of * probability * (1 - probability)) + 1, (kept, of, probability)


def _until_refused(watch: Watch) -> QodError:
    """The error of a cluster without task managers."""
    end = watch.harness.now() + watch.harness.start_s
    while watch.harness.now() < end:
        try:
            watch.look()
        except QodError as error:
            return error
        watch.harness.sleep(watch.harness.look_s)
    pytest.fail("a cluster without task managers is observed")
