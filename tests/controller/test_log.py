from __future__ import annotations

import pytest

from qod_magics.controller import DecisionLog
from qod_magics.core.plan import Move, ReleaseNode, Scale
from qod_magics.core.runtime import Event
from qod_magics.core.snapshot import Instance, Stream, Task, replace
from qod_magics.errors import UsageProblem
from qod_magics.policies import policy as policy_named
from tests.controller.scripted import FixedPolicy, bench, chain, place, seen
from tests.raising import breaks
from tests.texts import tells


def shed(b):
    return [
        (entry.names[0], entry.numbers["before"], entry.numbers["after"])
        for entry in b.controller.log.entries(kind="shedding")
    ]


def test_shedding_is_said_when_it_moved_by_more_than_a_hundredth_since_it_was_last_said():
    policy = FixedPolicy()
    b = bench(policy=policy)
    for desired in (1.0, 0.8, 0.795, 0.789, 0.785, 1.0):
        policy.desired = desired
        b.cycles(1)
    snk = [(before, after) for name, before, after in shed(b) if name == "Snk"]
    assert snk == [(1.0, 0.8), (0.8, 0.789), (0.789, 1.0)]


def test_an_entry_gives_the_numbers_before_and_after():
    b = bench(seen(chain(cpu=85.0, read=850.0)), policy=FixedPolicy(desired=0.5), warm_up_timeout_s=0.0)
    b.cycles(2)
    entry = b.controller.log.entries("Snk", kind="shedding")[0]
    assert tells(entry.words, "Snk", "1.00", "0.50", "fixed")
    assert str(entry) == f"00:00:00 #1 shedding: {entry.words}"


def test_a_move_is_said_once_while_it_is_asked_for():
    b = bench(policy=FixedPolicy(actions=(Move("Snk.1", "tm2", "tm1 has no room"),)))
    b.cycles(3)
    (entry,) = b.controller.log.entries(kind="move")
    assert entry.names == ("Snk.1", "Snk", "tm1", "tm2")
    assert tells(entry.words, "Snk.1", "tm1", "tm2", "tm1 has no room")


def test_why_tells_of_the_parallelism_and_the_task_managers_that_are_asked_for():
    b = bench(policy=FixedPolicy(actions=(Scale("Snk", 2, why="it is slow"), ReleaseNode("tm2", "it is idle"))))
    b.cycles(2)
    refused = "this cluster does not support"
    assert tells(b.controller.why("Snk"), 2, "it is slow", "refused", refused, "Scale")
    assert tells(b.controller.why("tm2"), "it is idle", "refused", refused, "ReleaseNode")
    assert b.controller.log.entries(kind="scale") == b.controller.log.entries(kind="release-node") == ()


def test_events_of_the_cluster_are_said_in_words():
    b = bench(
        seen(
            place(chain(), "Snk.1", "tm2"),
            Event("move", {"instance": "Snk.1", "from": "tm1", "to": "tm2", "took_s": 1.84, "why": "it was told to"}),
            Event("dial-fallback", {"task_manager": "tm2", "why": "reflect is refused"}),
        )
    )
    b.cycles(1)
    words = {entry.kind: entry.words for entry in b.controller.log.entries()}
    assert tells(words["moved"], "Snk.1", "tm1", "tm2", "1.8 s", "it was told to")
    assert tells(words["dial-fallback"], "tm2", "reflect is refused")
    assert tells(words["warm-up"], "Snk.1", "tm2")


@pytest.mark.parametrize(
    ("kind", "detail", "words"),
    [
        (
            "task-manager-starting",
            {"node_kind": "local", "standby": True, "why": "ahead of need"},
            "starts: ahead of need",
        ),
        ("task-manager-standby", {"took_s": 12.34, "why": "ahead of need"}, "stands by after 12.3 s: ahead of need"),
        ("task-manager-removed", {"took_s": 0.81, "why": "one is enough"}, "is released after 0.8 s: one is enough"),
        ("task-manager-removed", {}, "is released"),
        ("task-manager-failed", {"retry_in_s": 20.0, "why": "no Java"}, "failed: no Java; the next start is in 20 s"),
    ],
)
def test_task_managers_that_join_and_leave_are_said_in_words(kind, detail, words):
    b = bench(seen(chain(), Event(kind, {"task_manager": "tm2", **detail})))
    b.cycles(1)
    (entry,) = b.controller.log.entries(kind=kind)
    assert entry.words == f"tm2 {words}"
    assert entry.names == ("tm2",)


def test_the_log_is_bounded_but_keeps_the_newest_of_each_kind_about_each_name():
    policy = FixedPolicy(desired=0.5)
    b = bench(policy=policy, log=DecisionLog(size=3))
    b.cycles(1)
    for desired in (0.9, 0.8, 0.7):
        policy.desired = desired
        b.cycles(1)
    assert len(b.controller.log.entries()) == 3
    assert [e.kind for e in b.controller.log.newest("Src.1")] == ["warm-up-over", "warm-up"]


def taxi():
    """Two queries of different priorities on tm1 under pressure, one task manager beside it."""
    base = chain(rate=2000.0, read=1300.0, cpu=30.0, minimum=0.4)
    return replace(
        base,
        task_managers=(replace(base.task_managers[0], cpu=98.0), base.task_managers[1]),
        tasks=(*base.tasks, Task("Top", ("Src",), None, 3, 0.5)),
        streams=(*base.streams, Stream("Src", "Top", 1300.0)),
        instances=(*base.instances, Instance("Top.1", "Top", "tm1", 1300.0, 50.0, False)),
    )


@pytest.fixture
def busy():
    b = bench(seen(taxi(), lag={"Src": 40_000}, input_rate={"Src": 2000.0}), warm_up_timeout_s=60.0)
    b.cycles(3)
    return b


def test_why_of_a_query_names_its_accuracy_its_limits_and_who_is_served_first(busy):
    plan = busy.controller.last.plan
    words = busy.controller.why("Snk")
    assert tells(words, "Snk", f"{plan.desired['Snk']:.2f}")
    assert "minimum 0.40, priority 1)" in words
    assert tells(words, "tm1", "92.0 %", "64.6 %")
    assert "serves Top (priority 3) first" in words
    assert "\n" not in words


def test_why_of_a_source_names_its_queries_and_its_backlog(busy):
    words = busy.controller.why("Src")
    assert tells(words, "Snk", "backlog", 40000)


def test_why_of_a_task_manager_gives_what_it_has_and_runs(busy):
    words = busy.controller.why("tm1")
    assert "its 1 cores are 98.0 % busy, 90.0 % with its 3 instances" in words
    assert "it runs Top.1 (50.0 %), Snk.1 (30.0 %), Src.1 (10.0 %)" in words
    assert tells(busy.controller.why("tm2"), "tm2", "100.0 %", "0.0 %")


def test_why_of_a_task_manager_says_whether_it_sheds_and_how_far_its_costs_are_believed():
    base = taxi()
    tm1, tm2 = base.task_managers
    told = (replace(tm1, open_s=5.0), replace(tm2, trust=1.2))
    b = bench(seen(replace(base, task_managers=told)))
    b.cycles(1)
    assert tells(b.controller.why("tm1"), "backlog", "5 s")
    assert tells(b.controller.why("tm2"), "20%", "backlog")


def test_why_of_a_task_manager_says_what_a_warm_up_there_means():
    excluded = "until that is over, it takes no part in sharing and nothing is moved away from it"
    b = bench()
    b.cycles(1)
    assert f"warming up: Src.1, Snk.1; {excluded}" in b.controller.why("tm1")
    b = bench(policy=policy_named("stream-economics-reactive"))
    b.cycles(1)
    words = b.controller.why("tm1")
    assert tells(words, "Src.1, Snk.1", "open")
    assert "sharing" not in words


def test_why_of_an_instance_says_where_it_is_and_why():
    move = FixedPolicy(actions=(Move("Snk.1", "tm2", "tm1 has no room"),))
    b = bench(policy=move)
    b.cycles(1)
    words = b.controller.why("Snk.1")
    assert tells(words, "Snk.1", "tm1", "1000 rows/s", "40.0 %", "tm2", "tm1 has no room", "warming up")
    assert "move at 00:00:00: Snk.1 moves from tm1 to tm2" in words


def test_why_works_for_every_name_under_a_policy_that_is_not_stream_economics():
    b = bench(seen(taxi()), policy=FixedPolicy(desired=0.6))
    b.cycles(3)
    for name in ("Src", "Snk", "Top", "Src.1", "Top.1", "tm1", "tm2"):
        assert name in b.controller.why(name)


def test_why_of_something_unknown_suggests_the_nearest(busy):
    with pytest.raises(UsageProblem, check=breaks("exists", name="Tops")):
        busy.controller.why("Tops")


def test_why_before_the_first_cycle_says_to_wait():
    with pytest.raises(UsageProblem, check=breaks("decided")):
        bench().controller.why("Snk")


def test_why_of_a_plan_that_could_not_be_applied_says_so():
    b = bench(policy=FixedPolicy(desired=0.5), applying=[RuntimeError("no route")])
    b.cycles(1)
    assert "applied" in b.controller.why("Snk")
    assert tells(b.controller.why("Snk"), "Snk", "0.50")


def test_a_warm_up_is_given_as_the_reason_while_it_lasts_and_for_the_instance_after_that():
    b = bench(seen(chain(rate=1000.0)))
    b.cycles(1)
    warms = "warming up there: Src.1, Snk.1, so its queries run at their minimum until that is over"
    assert warms in b.controller.log.entries("Snk", kind="shedding")[0].words
    assert warms in b.controller.why("Snk")
    b.cycles(1)
    assert "warm" not in b.controller.why("Snk")
    last = "warm-up-over at 00:00:05: it is over after 5.0 s at accuracy 1.00 (minimum 0.40)"
    assert b.controller.why("Snk.1").endswith(last)
