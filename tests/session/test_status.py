"""The status as text, of a session that is made up of real tasks, instances and cycles, with no cluster behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.application.application import Application
from qod_magics.application.streams.rules import Rule, RuleCount
from qod_magics.application.tasks import TaskSpec, tasks
from qod_magics.controller import Controller, ManualClock, Recording
from qod_magics.controller.log import Cycle
from qod_magics.core.plan import Action, Plan
from qod_magics.core.runtime import Dials, Measured, Observation
from qod_magics.core.snapshot import Instance as Observed
from qod_magics.core.snapshot import Snapshot, Stream, Task, TaskManager, replace
from qod_magics.errors import UsageProblem
from qod_magics.lifecycle.events import Failed, State, SuspendAsked
from qod_magics.lifecycle.query import QueryLife
from qod_magics.policies.stream_economics import StreamEconomics
from qod_magics.session.handle import StreamHandle
from qod_magics.session.session import Session
from qod_magics.session.slices import Slices
from qod_magics.session.status import DECLARED, labels_in_short, status_text, stream_text, why_text
from qod_magics.spark.changes.resuming import Resuming
from qod_magics.spark.cluster.books import Account, Incomplete
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.plans.expressions import Label
from qod_magics.spark.plans.job import Job
from qod_magics.spark.plans.labels import Column, Labels
from qod_magics.spark.queries.instance import Instance
from tests.application.frames import application, stream
from tests.raising import breaks
from tests.spark.fakes import cluster
from tests.texts import tells


@dataclass
class Manager:
    """A task manager that is up somewhere."""

    id: str

    @property
    def describe(self) -> str:
        return f"{self.id}: local on core 0, 0.9 cores for tasks"


@dataclass
class Cluster:
    """What the status reads of a runtime; it observes what its tasks would show at 1,000 rows/s."""

    specs: dict[str, TaskSpec]
    task_managers: dict[str, Manager] = field(default_factory=lambda: {"tm1": Manager("tm1")})
    instances: dict[str, Instance] = field(default_factory=dict)
    applied: list[Plan] = field(default_factory=list)
    supports: frozenset[type[Action]] = frozenset()
    missing_topics: Mapping[str, str] = field(default_factory=dict)
    silent_kafka: Mapping[str, str] = field(default_factory=dict)
    kafka: Any = field(default_factory=lambda: SimpleNamespace(bootstrap="127.0.0.1:9092"))
    labels: dict[str, Labels] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    incomplete: Incomplete = field(default_factory=Incomplete)
    rule_counts: list[RuleCount] = field(default_factory=list)
    nodes: Any = None
    resuming: Resuming = field(default_factory=lambda: Resuming(cluster()))
    latencies: dict[str, dict[str, float]] = field(default_factory=dict)
    bottlenecks: dict[str, str] = field(default_factory=dict)

    def bottleneck(self, instance: Instance) -> str:
        return self.bottlenecks.get(instance.id, "")

    def __post_init__(self) -> None:
        for spec in self.specs.values():
            for index in range(spec.parallelism):
                name = f"{spec.id}.{index + 1}"
                job = Job(spec.id, name, index, (), no_plan, (), (), spec.sink, None, None)
                self.instances[name] = Instance(
                    job,
                    "/nowhere",
                    life=QueryLife(State.RUNNING),
                    task_manager=self.task_managers["tm1"],
                    mode="real-time",
                )

    @property
    def deployment(self) -> Deployment:
        checked, accounts = Checked(labels=self.labels), self.accounts
        return Deployment(None, "s", self.specs, checked=checked, accounts=accounts)  # type: ignore[arg-type]

    def observe(self) -> Observation:
        observed, streams = [], []
        for spec in self.specs.values():
            streams += [Stream(upstream, spec.id, 1000.0) for upstream in spec.upstream]
            own = [i for i in self.instances.values() if i.job.task == spec.id]
            observed += [Observed(i.id, spec.id, "tm1", 1000.0 / len(own), 25.5 / len(own), False) for i in own]
        snapshot = Snapshot(
            (TaskManager("tm1", 0.9, 63.6),),
            tuple(
                Task(
                    *(s.id, s.upstream, 1000.0 if s.is_source else None, s.priority, s.min_accuracy),
                    **self.latencies.get(s.id, {}),
                )
                for s in self.specs.values()
            ),
            tuple(streams),
            tuple(observed),
        )
        lag = {"Src": 1234, "Src>Snk": 50, "Src>Idle": 7}
        p95 = {name: fields["latency_p95_s"] for name, fields in self.latencies.items()}
        accuracy, dropped = {"Snk": 0.8125, "Src": 1.0}, {"Src": 4321, "Src>Snk": 10}
        late = dict(self.incomplete.late)
        return Observation(snapshot, Measured(lag, {}, accuracy, dropped, latency_s=p95, late=late))

    def apply(self, plan: Plan, dials: Dials) -> None:
        self.applied.append(plan)


def no_plan(*_: Any) -> Any:
    raise AssertionError("the status builds no plan")


class Made:
    """In the place of a session, as far as the status looks."""

    alive = True
    taken_by = ""
    waiting_streams: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, whole: Application, path: Any) -> None:
        self.application = whole
        self.runtime = Cluster({spec.id: spec for spec in tasks(whole)})
        self.controller = Controller(
            self.runtime, StreamEconomics(), clock=ManualClock(), recording=Recording(path / "run.jsonl")
        )
        self.slices = Slices(self)  # type: ignore[arg-type]

    @property
    def last(self) -> Cycle | None:
        return self.controller.last


TRIPS = (
    stream("Src", topic="trips"),
    stream("Snk", "Src", priority=2, min_accuracy=0.4, parallelism=2, key="zone"),
    stream("Idle", "Src", priority=1),
)


@pytest.fixture
def made(tmp_path: Any) -> Iterator[Made]:
    session = Made(application(*TRIPS), tmp_path)
    yield session
    session.controller.close()


def row(text: str, name: str) -> list[str]:
    """The cells of a task in the status."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return line.split()


def test_before_the_first_cycle_it_says_where_things_run(made: Made) -> None:
    text = status_text(made)
    assert text.splitlines()[0] == Manager("tm1").describe
    assert row(text, "Src") == ["Src", "tm1", "real-time"]
    assert row(text, "Snk") == ["Snk", "tm1", "tm1", "real-time", "0.400", "2"]


def test_with_a_budget_it_says_who_joins_and_leaves(made: Made) -> None:
    made.runtime.nodes = SimpleNamespace(text=lambda: "tm2 standing by")
    assert status_text(made).splitlines()[1] == "tm2 standing by"


def test_after_a_cycle_it_has_the_figures(made: Made) -> None:
    made.controller.step()
    text = status_text(made)
    assert tells(text.splitlines()[0], Manager("tm1").describe, "64 %")
    planned = made.controller.last.plan.desired
    assert row(text, "Snk") == (f"Snk tm1 tm1 real-time 1,000 25.5 0.812 {planned['Snk']:.3f} 0.400 2 50 10".split())
    assert row(text, "Src") == (f"Src tm1 real-time 1,000 25.5 1.000 {planned['Src']:.3f} 1,234 4,321".split())


def test_latencies_are_shown_against_the_target(made: Made) -> None:
    assert "p95" not in status_text(made), "nothing is known"
    made.runtime.latencies = {"Snk": {"latency_p50_s": 0.0351, "latency_p95_s": 1.254, "oldest_s": 37.2}}
    made.controller.step()
    assert row(status_text(made), "Snk")[-7:] == ["10", "35", "ms", "1.25", "s", "37", "s"]
    assert tells(stream_text(made, "Snk"), "95 %", "1.25 s")
    (snk,) = (s for s in TRIPS if s.name == "Snk")
    made.runtime.specs = {
        s.id: s for s in tasks(application(*(replace(s, max_latency_s=2.0) if s is snk else s for s in TRIPS)))
    }
    assert row(status_text(made), "Snk")[-8:] == ["35", "ms", "1.25", "s", "2.00", "s", "37", "s"], (
        "before the next cycle"
    )
    assert tells(stream_text(made, "Snk"), "95 %", "1.25 s", "2.00 s")


def test_rows_behind_a_watermark_and_lost_state_are_told(made: Made) -> None:
    made.controller.step()
    assert "late" not in status_text(made)
    made.runtime.incomplete.add("Snk", 1234, grouped=True)
    made.runtime.incomplete.lost_at["Snk"] = 1_800_000_000.0
    made.controller.step()
    text = status_text(made)
    assert row(text, "Snk")[-1] == "1,234+"
    assert tells(text, "Snk", "1,234", "watermark")
    assert tells(text, "Snk", "state")
    assert "watermark" in why_text(made, "Snk")
    assert "watermark" not in why_text(made, "Src")


def test_rules_that_rows_break_are_told(made: Made) -> None:
    made.runtime.rule_counts += [RuleCount("Src", Rule("a > 0", "drop"), 3), RuleCount("Src", Rule("a < 9"), 0)]
    text = status_text(made)
    assert tells(text, "Src", 3, "a > 0", "dropped")
    assert "a < 9" not in text


def test_the_columns_stand_under_their_names(made: Made) -> None:
    made.controller.step()
    header, *rows = [line for line in status_text(made).splitlines() if line.startswith(("task", "S", "I"))]
    ends = {name: header.index(name) + len(name) for name in ("lag", "dropped", "accuracy")}
    assert {name: rows[1][:end].split()[-1] for name, end in ends.items()} == {
        "lag": "50",
        "dropped": "10",
        "accuracy": "0.812",
    }


def test_without_streams_it_is_the_task_managers_alone(tmp_path: Any) -> None:
    assert status_text(Made(Application(), tmp_path)) == Manager("tm1").describe


def test_what_waits_is_named(tmp_path: Any) -> None:
    text = status_text(Made(application(stream("Src", topic="trips"), stream("Mid", "Src")), tmp_path))
    (line,) = text.splitlines()[1:]
    assert tells(line, "waiting", "Src, Mid")


def test_a_kafka_that_does_not_answer_is_named_though_no_topic_is_read_there(made: Made) -> None:
    assert "does not answer" not in status_text(made)
    made.runtime.silent_kafka = {"own:1": "Kafka at own:1 does not answer: no answer. Is it running?"}
    (line,) = [line for line in status_text(made).splitlines() if "does not answer" in line]
    assert tells(line, "own:1", "wait")


def test_fused_streams_are_one_row(tmp_path: Any) -> None:
    made = Made(application(stream("Src", topic="trips"), stream("Snk", "Src", priority=1)), tmp_path)
    assert row(status_text(made), "Src+Snk")[:2] == ["Src+Snk", "tm1"]
    assert tells(stream_text(made, "Src"), "Src", "tm1", "real-time", "Src -> Snk")


def test_of_a_query_that_drops_rows_it_says_what_that_does_to_its_columns(made: Made) -> None:
    counted = Labels(
        (Column("zone", Label.EXACT), Column("n", Label.KEPT)), "groups of which no row is kept are missing"
    )
    made.runtime.labels.update({"Snk": counted, "Idle": counted, "Src": counted})
    assert "drops rows" not in status_text(made)
    made.controller.step()
    (line,) = [line for line in status_text(made).splitlines() if "drops rows" in line]
    assert tells(line, "Snk", "zone exact", "n")
    made.runtime.labels["Snk"] = Labels((Column("zone", Label.EXACT),))  # its rows depend on one row each
    assert "drops rows" not in status_text(made)


def test_a_shedder_that_is_held_by_hand_is_named(made: Made) -> None:
    made.controller.override(("Src", "Snk"), 0.1)
    line = "Src>Snk keeps 0.1 of its rows, by hand (%qod override Src>Snk auto gives it back)"
    assert line in status_text(made).splitlines()
    made.controller.override(("Src", "Snk"), None)
    assert "by hand" not in status_text(made)


def test_a_shedder_that_is_held_and_gone_is_named_and_can_be_given_back(made: Made) -> None:
    session = session_of(made)
    session.override("Src>Snk", 0.5)
    made.runtime.specs = {spec.id: spec for spec in tasks(application(*TRIPS[:1], TRIPS[2]))}
    line = "Src>Snk keeps 0.5 of its rows once it is there again, by hand (%qod override Src>Snk auto gives it back)"
    assert line in status_text(made).splitlines()
    with pytest.raises(UsageProblem, check=breaks("exists", name="Src>Snk")):
        session.override("Src>Snk", 0.6)
    session.override("Src>Snk", None)
    assert "by hand" not in status_text(made)
    with pytest.raises(UsageProblem, check=breaks("exists", name="Src>Snk")):
        session.override("Src>Snk", None)


def test_a_shedder_that_is_held_and_fused_for_the_moment_stays_held_while_other_streams_stop(made: Made) -> None:
    session: Any = session_of(made)
    session._streams.remove = lambda _: setattr(session._streams, "application", application(*TRIPS[:2]))
    session.override("Src>Snk", 0.5)
    session.override("Src>Idle", 0.5)
    made.runtime.specs = {spec.id: spec for spec in tasks(application(TRIPS[0], stream("Snk", "Src", priority=1)))}
    assert "Src>Snk" not in session.shedders
    session.stop("Idle")
    assert made.controller.overrides == {("Src", "Snk"): 0.5}


def test_what_is_held_while_plans_are_only_recommended_waits_until_they_are_applied(made: Made) -> None:
    session = session_of(made)
    session.override("Src", 0.9)
    made.controller.step()
    session.pause()
    later = "once plans are applied again (%qod resume)"
    assert later in session.override("Src>Snk", 0.5) == session.override("Src>Idle", None)
    made.controller.step()
    by_hand = [line for line in status_text(made).splitlines() if line.startswith("Src") and "by hand" in line]
    assert len(by_hand) == 2
    assert tells(by_hand[0], "Src", 0.9, "%qod override Src auto")
    assert tells(by_hand[1], "Src>Snk", 0.5, later, "%qod override Src>Snk auto")
    said = [entry.words for entry in made.controller.log.entries(kind="override")]
    assert len(said) == 3
    assert tells(said[1], "Src>Snk", "0.50")
    assert tells(said[2], "Src>Idle")
    made.controller.resume()
    made.controller.step()
    assert later not in status_text(made)
    assert session.override("Src>Snk", 0.4) == ""


def test_paused_is_said_while_it_lasts(made: Made) -> None:
    made.controller.pause()
    assert any(line.startswith("paused") for line in status_text(made).splitlines())
    made.controller.resume()
    assert "paused" not in status_text(made)


def test_the_last_decision_is_told(made: Made) -> None:
    assert "last decision" not in status_text(made)
    made.runtime.instances["Snk.1"].life.failure = "cured"  # what runs again is not told
    for number in range(2):
        made.controller.note("cycle-late", f"the cycle took {7 + number} s")
        made.controller.step()
        last = status_text(made).splitlines()[-1]
        assert last == f"last decision: {made.controller.log.entries()[-1]}"
    assert "cycle took 8 s" in "".join(map(str, made.controller.log.entries()))
    assert "cured" not in status_text(made)


@pytest.mark.parametrize("state", [State.BACKING_OFF, State.GAVE_UP])
def test_a_failure_is_told_with_its_reason(made: Made, state: State) -> None:
    instance = made.runtime.instances["Snk.2"]
    instance.life.state, instance.life.failure, instance.task_manager = state, "no fare", None
    assert tells(status_text(made), "Snk.2", state.value, "no fare")
    assert row(status_text(made), "Snk")[1:3] == ["tm1", state.value.split()[0]]
    assert tells(stream_text(made, "Snk"), "Snk", state.value, "no fare")


def test_of_those_that_restart_for_their_tables_it_names_the_ones_that_run(tmp_path: Any) -> None:
    source, *readers = TRIPS
    made = Made(application(source, *(replace(each, refresh_s=90.0, fuse=False) for each in readers)), tmp_path)
    made.runtime.instances["Snk.1"].handle(SuspendAsked("no room"))
    made.runtime.instances["Idle.1"].handle(Failed("no broker"))
    (line,) = (line for line in status_text(made).splitlines() if "for its tables" in line)
    made.controller.close()
    assert tells(line, "Snk.2", "90 s")


def test_what_a_plan_has_stopped_is_told_with_its_reason_and_with_what_starts_it(made: Made) -> None:
    instance = made.runtime.instances["Snk.2"]
    instance.handle(SuspendAsked("tm1 has 20 % for 50 %"))
    instance.let_go()
    (line,) = (line for line in status_text(made).splitlines() if line.startswith("Snk.2 is suspended: "))
    assert "tm1 has 20 % for 50 %" in line
    assert "%qod move Snk.2" in line
    assert row(status_text(made), "Snk")[1:3] == ["tm1", "suspended"]
    assert tells(stream_text(made, "Snk"), "Snk", "suspended", "tm1 has 20 % for 50 %")
    assert "tm1 has 20 % for 50 %" in why_text(made, "Snk").splitlines()[-1]


def test_why_a_mode_was_not_taken_is_told(made: Made) -> None:
    instance = made.runtime.instances["Idle.1"]
    instance.mode, instance.mode_why = "micro-batch", "real-time mode does not write parquet:/out"
    line = "Idle.1 runs in micro-batch mode: real-time mode does not write parquet:/out"
    assert line in status_text(made).splitlines()


def test_a_query_that_may_be_shed_has_its_labels_in_short(made: Made) -> None:
    counted = Labels(
        (Column("zone", Label.EXACT), Column("n", Label.KEPT)), "groups of which no row is kept are missing"
    )
    made.runtime.labels = {"Src": counted, "Snk": counted, "Idle": counted}
    assert labels_in_short(made) == {"Snk": counted.short}, "the others are no query, or must not be shed"
    made.runtime.labels = {"Snk": Labels((Column("zone", Label.EXACT),))}
    assert labels_in_short(made) == {}


# -- why ---------------------------------------------------------------------------------------------------------------


def test_of_what_no_cycle_has_seen_yet_it_says_when_one_will(made: Made) -> None:
    soon = "nothing was decided about {} yet: the next cycle is within 5 s"
    assert why_text(made, "Snk") == soon.format("Snk")
    made.controller.step()
    assert "Snk" in why_text(made, "Snk")
    made.runtime.task_managers["tm2"] = Manager("tm2")
    made.runtime.specs |= {s.id: s for s in tasks(application(stream("New", topic="trips", priority=1)))}
    made.runtime.instances["New.1"] = made.runtime.instances["Snk.1"]
    for name in ("tm2", "New", "New.1"):
        assert why_text(made, name) == soon.format(name)
    with pytest.raises(UsageProblem, check=breaks("exists", name="tm3")):
        why_text(made, "tm3")
    made.runtime.observe = lambda: 1 / 0  # type: ignore[method-assign]
    made.controller.step()
    assert tells(why_text(made, "tm2"), "tm2", "observe() failed", "ZeroDivisionError")


def test_why_tells_what_happened_to_a_query(made: Made) -> None:
    one = [each for each in made.runtime.instances.values() if each.job.task == "Snk"][-1]
    one.handle(Failed("connection refused"))
    for name in ("Snk", one.id):
        last = why_text(made, name).splitlines()[-1]
        assert last.startswith(f"{one.id} at ")
        assert tells(last, "running", "backing off", "1 s", "connection refused")
    assert "backing off" not in why_text(made, "Src")


def test_why_names_what_the_batches_of_a_query_wait_for(made: Made) -> None:
    one = [each for each in made.runtime.instances.values() if each.job.task == "Snk"][-1]
    made.runtime.bottlenecks[one.id] = "batches of 9.8 s wait 6.0 s for a slot that other batches use"
    for name in ("Snk", one.id):
        assert tells(why_text(made, name), one.id, "9.8 s", "6.0 s", "slot")
    assert "slot" not in why_text(made, "Src")


def test_of_what_waits_it_says_for_what(tmp_path: Any) -> None:
    made = Made(
        application(stream("Src", topic="trips"), stream("Snk", "Src", priority=1), stream("Mid", "Src")), tmp_path
    )
    assert why_text(made, "Mid") == f"Mid {DECLARED}"
    assert tells(why_text(made, "Src"), "Src", "Src -> Snk", "Snk", "5 s")


# -- the repr of a stream ----------------------------------------------------------------------------------------------


def test_a_stream_says_how_it_keeps_up(made: Made) -> None:
    handle = StreamHandle(made, "Snk")
    assert tells(repr(handle), "Snk", "tm1", "real-time")
    made.controller.step()
    assert tells(repr(handle), "Snk", "tm1", "real-time", "1,000 rows/s", "25.5 %", "accuracy 0.812", 0.4)
    assert tells(repr(StreamHandle(made, "Src")), "25.5 %", "accuracy 1.000")


def test_a_stream_that_is_no_more_says_so(made: Made) -> None:
    handle = StreamHandle(made, "Idle")
    made.application = application(*TRIPS[:2])
    assert repr(handle) == "Idle: stopped"
    made.alive = False
    assert tells(repr(handle), "Idle", "ended")


def test_a_stream_that_waits_says_for_what(tmp_path: Any) -> None:
    made = Made(application(stream("Src", topic="trips")), tmp_path)
    assert repr(StreamHandle(made, "Src")) == f"Src {DECLARED}"


# -- what its declaration says -----------------------------------------------------------------------------------------


def test_declared_again_it_says_what_goes_on_and_what_starts_again(made: Made) -> None:
    assert tells(StreamHandle(made, "Snk", True, True).said, "Snk", "unchanged", "tm1", "real-time")
    second = made.runtime.instances["Snk.2"]
    second.life.state, second.life.failure = State.BACKING_OFF, "no fare"
    again = StreamHandle(made, "Snk", True, True, restarted=("Snk.2",))
    assert tells(again.said, "Snk", "checkpoint", "no fare")


@pytest.mark.parametrize(
    ("replaced", "unchanged", "done"), [(1, 1, "unchanged"), (1, 0, "replaced"), (0, 0, "declared")]
)
def test_what_does_not_run_tells_its_state(made: Made, replaced: bool, unchanged: bool, done: str) -> None:
    made.runtime.instances["Snk.2"].life.state = State.WAITING
    assert StreamHandle(made, "Snk", replaced, unchanged).said == f"Snk is {done}, but waiting"


# -- the repr of a session ---------------------------------------------------------------------------------------------


def session_of(made: Made, **more: Any) -> Session:
    """A session around what is made up."""
    session = object.__new__(Session)
    session.__dict__.update(
        id="a1b2c3",
        _ended=False,
        kafka=made.runtime.kafka,
        recording_path="run.jsonl",
        runtime=made.runtime,
        _streams=SimpleNamespace(application=made.application),
        controller=made.controller,
        thread=made.controller,
        **more,
    )
    return session


def test_a_session_says_what_is_up(made: Made) -> None:
    session = session_of(made)
    assert tells(repr(session), "a1b2c3", "127.0.0.1:9092", 1, "tm1", 3, "Src, Snk, Idle", "5 s", "run.jsonl")
    made.controller.step()
    made.controller.pause()
    made.runtime.task_managers["tm2"] = Manager("tm2")
    assert "2 task managers (tm1, tm2); " in repr(session)
    assert tells(repr(session), "recommends", "5 s", "cycle 1")
    made.runtime.kafka = SimpleNamespace(bootstrap="second:9")
    assert tells(repr(session), "127.0.0.1:9092", "second:9")


def test_a_session_without_anything_says_so(tmp_path: Any) -> None:
    made = Made(Application(), tmp_path)
    made.runtime.task_managers.clear()
    assert tells(repr(session_of(made)), "no task managers", "no streams")


def test_a_session_that_has_ended_says_so(made: Made) -> None:
    session = session_of(made)
    session._ended = True
    assert tells(repr(session), "a1b2c3", "ended")


def test_rows_that_were_read_or_sent_twice_are_told(made: Made) -> None:
    assert "twice" not in status_text(made)
    account = Account("s", {0: 0}, again=12)
    account.repeats.rows = 3456
    made.runtime.accounts["Src>Snk"] = account
    lines = [line for line in status_text(made).splitlines() if line.startswith("Src>Snk: ")]
    assert len(lines) == 2
    assert tells(lines[0], 12, "read twice")
    assert tells(lines[1], "3,456", "twice")
