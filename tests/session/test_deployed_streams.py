"""The streams of a session, on a runtime that takes note of the tasks it is given."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.application.application import Application
from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.recipes.recipe import SqlRecipe
from qod_magics.application.shed_keys import Ask, Place
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import AUTO, TopicInput
from qod_magics.application.tasks import TaskSpec
from qod_magics.application.weights import LEFT_OUT, NOT_INDEPENDENT, Weights
from qod_magics.errors import ApplicationError, TaskManagerError
from qod_magics.named.manifest import KeptTask
from qod_magics.session.deployed_streams import Streams
from qod_magics.spark.changes.resuming import Resuming
from qod_magics.spark.cluster.books import Incomplete
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.plans.labels import Column, Label, Labels
from tests.application.frames import stream
from tests.raising import breaks
from tests.spark.fakes import cluster
from tests.texts import tells

WAIT_S = 30.0  #: far more than anything here takes


class Deployed:
    """In the place of a runtime and its deployer: what it runs, and how long it takes to run it."""

    def __init__(self) -> None:
        self.deployer = self
        self.resuming, self.returned = Resuming(cluster()), ()
        self.specs: tuple[TaskSpec, ...] = ()
        self.checked: list[Sequence[TaskSpec]] = []
        self.weights = Weights()  # of all that is checked and run
        self.broken = self.refused = False
        self.asked: dict[str, tuple[Ask, ...] | None] = {}  # by query
        self.failing: tuple[str, ...] = ()  # the key with which recipes fail
        self.stateful: set[str] = set()  # tasks whose maximum latency decides on their modes
        self.edges: tuple[tuple[str, str], ...] = ()  #: streams between tasks
        self.unfused: tuple[tuple[str, str], ...] = ()  #: the same, from when the next deployment begins
        self.restricted = 0  #: how often, without a deployment
        self.labels: dict[str, Labels] = {}  #: of all that is checked and run
        self.told: Mapping[str, Labels] = {}  #: those of the last restriction
        self.recovery = self
        self.resumed = self.lost_state = frozenset[str]()  #: tasks replaced with their state, and without it
        self.incomplete = Incomplete()
        self.given_up: set[str] = set()  #: tasks
        self.deploying, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    @property
    def deployment(self) -> Any:
        specs = {spec.id: spec for spec in self.specs}
        checked = Checked(weights=self.weights, labels=self.labels)
        return SimpleNamespace(edges=self.edges, checked=checked, check=self._check, specs=specs, created={})

    def _check(self, specs: Sequence[TaskSpec], _: None) -> Checked:
        self.checked.append(specs)
        if self.failing and any(topic.shed_by == self.failing for spec in specs for topic in spec.topics.values()):
            raise ApplicationError("no interval")
        if self.refused:
            raise ApplicationError("an estimate of pairs")
        return Checked({}, self.weights, self.labels)

    def restart_given_up(self, tasks: Collection[str]) -> tuple[str, ...]:
        found = self.given_up & set(tasks)
        self.given_up -= found
        return tuple(f"{task}.1" for task in found)

    def held_modes(self, tasks: Collection[str]) -> str:
        return ", ".join(sorted(self.stateful & set(tasks)))

    def inlinable(self, _: Application) -> dict[str, int]:
        return {}

    def asks(self, application: Application) -> dict[str, tuple[Ask, ...] | None]:
        return {query: asked for query, asked in self.asked.items() if query in application.queries}

    def workshop(self) -> None:
        return None

    def deploy(self, specs: tuple[TaskSpec, ...], edges: tuple[tuple[str, str], ...]) -> bool:
        self.deploying.set()
        assert self.go_on.wait(WAIT_S)
        self.edges, self.unfused = self.unfused or self.edges, ()
        if edges != self.edges:
            return False
        if self.broken:
            raise TaskManagerError("gone")
        self.specs = specs
        return True

    def restrict(self, specs: tuple[TaskSpec, ...], labels: Mapping[str, Labels]) -> None:
        self.restricted += 1
        self.told = labels
        self.specs = specs

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        return {head: topic.shed_by for spec in self.specs for head, topic in spec.topics.items()}

    @property
    def priorities(self) -> dict[str, int | None]:
        return {spec.id: spec.priority for spec in self.specs}


@pytest.fixture
def runtime() -> Deployed:
    return Deployed()


@pytest.fixture
def streams(runtime: Deployed) -> Streams:
    made = Streams(runtime)  # type: ignore[arg-type]
    made.declare(stream("query", topic="rows", priority=1))
    return made


def test_what_is_parted_while_a_stream_is_declared_stays_apart(streams: Streams, runtime: Deployed) -> None:
    streams.declare(stream("first", topic="rows"))
    streams.declare(stream("last", "first", priority=1))
    assert [spec.id for spec in runtime.specs] == ["query", "last"]
    runtime.unfused = (("first", "last"),)
    streams.declare(stream("other", topic="rows", priority=2))
    assert [spec.id for spec in runtime.specs] == ["query", "first", "last", "other"]


def test_what_is_declared_runs(streams: Streams, runtime: Deployed) -> None:
    assert not streams.declare(stream("other", topic="rows", priority=2)).replaced
    assert runtime.priorities == {"query": 1, "other": 2}
    assert streams.declare(stream("other", topic="rows", priority=3)).replaced, "it takes the place of the first"
    streams.restrict("query", priority=4)
    assert runtime.priorities == {"query": 4, "other": 3}
    streams.remove("query")
    assert runtime.priorities == {"other": 3}
    streams.clear()
    assert runtime.priorities == {}
    assert tells(repr(streams), "none")


def test_what_was_given_up_starts_again_once_it_is_declared_again(streams: Streams, runtime: Deployed) -> None:
    same = stream("query", topic="rows", priority=1)
    streams.declare(stream("other", topic="rows", priority=1))
    runtime.given_up = {"query", "other"}
    assert streams.declare(same, dry_run=True).restarted == ()
    declared = streams.declare(same)
    assert (declared.unchanged, declared.restarted) == (True, ("query.1",))
    assert runtime.given_up == {"other"}
    assert streams.declare(same).restarted == ()
    runtime.given_up = {"query"}
    assert streams.declare(replace(same, priority=3)).restarted == ("query.1",), "the same but for its restrictions"


def test_a_stream_that_waits_starts_once_it_is_restricted(streams: Streams, runtime: Deployed) -> None:
    streams.declare(stream("waits", topic="rows"))
    assert runtime.priorities == {"query": 1}
    runtime.deploying.clear()
    streams.restrict("waits", priority=2)
    assert runtime.priorities == {"query": 1, "waits": 2}
    assert (runtime.deploying.is_set(), runtime.restricted) == (True, 0)
    streams.restrict("waits", priority=3)
    assert (runtime.priorities["waits"], runtime.restricted) == (3, 1)


def test_a_maximum_latency_restarts_nothing(streams: Streams, runtime: Deployed) -> None:
    def latest() -> tuple[float | None, float | None]:
        (spec,) = runtime.specs
        return spec.max_latency_s, spec.utility

    runtime.deploying.clear()
    assert streams.restrict("query", max_latency_s=5.0, utility=2.0) == ""
    assert latest() == (5.0, 2.0)
    assert streams.restrict("query", max_latency_s=0.5) == "", "it runs in real-time mode anyhow"
    assert streams.restrict("query", max_latency_s=inf, utility=inf) == ""
    assert latest() == (None, None)
    runtime.stateful = {"query"}
    assert streams.restrict("query", max_latency_s=0.5) == "query", "what keeps its mode is told"
    assert streams.restrict("query", max_latency_s=0.4) == ""
    assert streams.restrict("query", max_latency_s=2.0) == "query"
    assert latest() == (2.0, None)
    assert (runtime.deploying.is_set(), runtime.restricted) == (False, 6)


@pytest.mark.parametrize(
    ("name", "change", "rule"),
    [
        ("query", {"max_latency_s": 0.0}, "in range"),
        ("query", {"utility": -1.0}, "in range"),
        ("query", {}, "a change"),
        ("waits", {"max_latency_s": 1.0}, "a query"),
    ],
)
def test_what_no_query_can_have(streams: Streams, name: str, change: dict[str, float], rule: str) -> None:
    streams.declare(stream("waits", topic="rows"))
    before = streams.application
    with pytest.raises(ApplicationError, check=breaks(rule)):
        streams.restrict(name, **change)
    assert streams.application is before


def test_a_query_whose_rows_may_be_dropped_from_now_on_is_checked_anew(streams: Streams, runtime: Deployed) -> None:
    checked = len(runtime.checked)
    streams.restrict("query", priority=2)
    assert len(runtime.checked) == checked
    streams.restrict("query", min_accuracy=0.5)
    assert len(runtime.checked) == checked + 1
    streams.restrict("query", min_accuracy=0.4)
    streams.restrict("query", min_accuracy=1.0)
    assert len(runtime.checked) == checked + 1
    runtime.refused = True
    with pytest.raises(ApplicationError, match="estimate"):
        streams.restrict("query", min_accuracy=0.9)
    assert streams.application["query"].effective_min_accuracy == 1.0
    assert runtime.restricted == 4


def test_who_lets_rows_be_dropped_from_now_on_hears_what_that_does(streams: Streams, runtime: Deployed) -> None:
    runtime.labels = {"query": Labels((Column("zone", Label.EXACT), Column("n", Label.KEPT)))}
    runtime.stateful = {"query"}
    assert streams.restrict("query", priority=2) == ""
    note = f"when rows are dropped: {runtime.labels['query']}"
    assert streams.restrict("query", min_accuracy=0.5, max_latency_s=0.5) == f"query; {note}"
    assert runtime.told == runtime.labels, "for status and views"
    assert (streams.restrict("query", min_accuracy=0.4), runtime.told) == ("", {}), "that was said before"
    streams.declare(stream("waits", topic="rows"))
    runtime.labels = {"waits": runtime.labels["query"]}
    assert streams.restrict("waits", min_accuracy=0.5) == note
    runtime.labels = {"query": Labels((Column("zone", Label.EXACT),))}
    streams.restrict("query", min_accuracy=1.0)
    assert streams.restrict("query", min_accuracy=0.5) == "", "all its columns are exact"


def test_one_that_waits_and_cannot_start_stays_as_it_was(streams: Streams, runtime: Deployed) -> None:
    streams.declare(stream("waits", topic="rows"))
    runtime.broken, before = True, streams.application
    with pytest.raises(TaskManagerError):
        streams.restrict("waits", priority=2)
    assert (streams.application, runtime.priorities) == (before, {"query": 1})


def test_who_declares_the_same_again_hears_that_it_goes_on(streams: Streams) -> None:
    assert streams.declare(stream("query", topic="rows", priority=1)).unchanged
    assert not streams.declare(stream("query", topic="rows", priority=2)).unchanged


def test_a_dry_run_is_checked_and_not_run(streams: Streams, runtime: Deployed) -> None:
    streams.declare(stream("other", topic="rows", priority=2), dry_run=True)
    assert [spec.id for spec in runtime.checked[-1]] == ["query", "other"]
    assert (streams.application.names, list(runtime.priorities)) == (("query",), ["query"])


def test_who_declares_a_stream_hears_where_weights_are_null(streams: Streams, runtime: Deployed) -> None:
    runtime.weights.unknown.update(bare=LEFT_OUT, pairs=NOT_INDEPENDENT, total=LEFT_OUT)
    null = "_weight is null in its rows, as "
    assert streams.declare(stream("bare", topic="rows")).notes == (null + LEFT_OUT,)
    assert streams.declare(stream("bare", topic="rows"), dry_run=True).notes == (null + LEFT_OUT,)
    pairs = StreamDeclaration("pairs", PythonRecipe("bare.join(bare, 'id').select('_weight')"), ("bare",), priority=1)
    assert null + NOT_INDEPENDENT in streams.declare(pairs).notes
    assert streams.declare(stream("total", topic="rows", priority=1)).notes == (), "no stream reads a query"
    assert streams.declare(stream("passed", "bare", priority=1)).notes == (), "it does not name the weight"
    weighs = StreamDeclaration("weighs", PythonRecipe("bare.select('_weight')"), ("bare",), priority=1)
    assert [tells(note, "_weight", "bare", LEFT_OUT) for note in streams.declare(weighs).notes] == [True]
    runtime.weights.partly.add("outer")
    outer = StreamDeclaration("outer", PythonRecipe("bare.join(bare, 'id', 'left')._weight"), ("bare",), priority=1)
    (note,) = streams.declare(outer).notes
    assert tells(note, "_weight", "outer join")
    runtime.weights.unknown.clear()
    assert streams.declare(stream("bare", topic="others")).notes == (), "it was replaced by one with a weight"
    runtime.weights.partly.clear()
    assert streams.declare(replace(outer, priority=2)).notes == ()


def test_who_declares_a_query_that_may_be_shed_hears_that_its_rows_are_without_a_weight(
    streams: Streams, runtime: Deployed
) -> None:
    runtime.weights.hidden.add("passed")
    passed = stream("passed", topic="rows", priority=1, min_accuracy=0.5)
    (note,) = streams.declare(passed).notes
    assert "_weight" in note
    assert streams.declare(replace(passed, min_accuracy=1.0)).notes == (), "none is dropped"


def test_earliest_is_not_where_a_stream_begins_again_that_is_declared_anew(streams: Streams) -> None:
    earliest = TopicInput("rows", starting="earliest")
    query = StreamDeclaration("query", PythonRecipe("source"), earliest, priority=1)
    (note,) = streams.declare(query).notes
    assert "`%qod stop query`" in note
    assert streams.declare(replace(query, inputs=replace(earliest, topic="others"))).notes == ()
    assert streams.declare(replace(query, inputs=TopicInput("others"))).notes == ()
    streams.remove("query")
    assert streams.declare(query).notes == ()


def test_a_change_that_the_runtime_refuses_is_none(streams: Streams, runtime: Deployed) -> None:
    runtime.broken = True
    before = streams.application
    for change in (lambda: streams.declare(stream("other", topic="rows", priority=2)), streams.clear):
        with pytest.raises(TaskManagerError):
            change()
        assert streams.application is before
    with pytest.raises(ApplicationError):
        streams.restrict("query", min_accuracy=2.0)
    assert streams.application is before


def test_changes_from_two_threads_are_both_made(streams: Streams, runtime: Deployed) -> None:
    """A slider moves while a cell starts a stream, which takes seconds."""
    runtime.deploying.clear()
    runtime.go_on.clear()
    cell = threading.Thread(target=lambda: streams.declare(stream("other", topic="rows", priority=2)))
    slider = threading.Thread(target=lambda: streams.restrict("query", priority=9))
    cell.start()
    assert runtime.deploying.wait(WAIT_S)
    slider.start()
    slider.join(0.2)  # it would be over by then if it did not wait
    runtime.go_on.set()
    cell.join(WAIT_S)
    slider.join(WAIT_S)
    assert runtime.priorities == {"query": 9, "other": 2}
    assert {s.name: s.priority for s in streams.application} == {"query": 9, "other": 2}


def test_who_has_estimates_made_hears_of_which_columns(streams: Streams, runtime: Deployed) -> None:
    recipe = SqlRecipe("SELECT zone, count(*), sum(fare) AS total FROM source GROUP BY zone", estimates=True)
    declared = streams.declare(StreamDeclaration("counts", recipe, TopicInput("rows"), priority=1))
    (note,) = declared.notes
    assert tells(note, "count(*), total")


def clicks(**settings: Any) -> StreamDeclaration:
    topic = TopicInput("clicks", "user LONG, page LONG", shed_by=AUTO)
    return StreamDeclaration("clicks", PythonRecipe("source"), topic, **settings)


def of(*columns: str) -> tuple[Ask, ...]:
    return (tuple((Place("clicks", column),) for column in columns),)


def test_who_declares_a_query_that_can_not_be_told_hears_how_to_choose(runtime: Deployed) -> None:
    streams = Streams(runtime)  # type: ignore[arg-type]
    runtime.asked = {"pairs": None}
    streams.declare(clicks())
    (note,) = streams.declare(stream("pairs", "clicks", min_accuracy=0.5)).notes
    assert tells(note, "clicks", "row by row", "pairs", "--shed-by")


def test_a_topic_is_shed_by_what_its_queries_ask_for(runtime: Deployed) -> None:
    streams = Streams(runtime)  # type: ignore[arg-type]
    runtime.asked = {"seen": of("user", "page"), "users": of("user"), "pages": of("page")}
    (note,) = streams.declare(clicks()).notes
    assert tells(note, "clicks", "row by row")
    assert streams.declare(stream("every", "clicks", priority=1)).notes == ()
    assert runtime.keys == {"clicks": ()}
    (note,) = streams.declare(stream("seen", "clicks", min_accuracy=0.5), dry_run=True).notes
    assert tells(note, "clicks", "user, page", "seen", "every")
    assert runtime.keys == {"clicks": ()}
    assert streams.declare(stream("seen", "clicks", min_accuracy=0.5)).notes == (note,)
    assert runtime.keys == {"clicks": ("user", "page")}
    (note,) = streams.declare(stream("users", "clicks", min_accuracy=0.5)).notes
    assert tells(note, "clicks", "user", "seen, users")
    assert streams.declare(stream("more", "clicks", min_accuracy=0.5)).notes == ()
    streams.remove("users")
    assert runtime.keys == {"clicks": ("user",)}, "another key would restart what reads it without state"
    (note,) = streams.declare(stream("pages", "clicks", min_accuracy=0.5)).notes
    assert tells(note, "clicks", "page", "seen, pages")
    (note,) = streams.declare(stream("users", "clicks", min_accuracy=0.5)).notes
    assert tells(note, "clicks", "row by row", "seen", "user or page", "users", "user", "pages", "page")
    assert runtime.keys == {"clicks": ()}
    assert streams.application["clicks"] == clicks()


def test_a_key_with_which_a_recipe_fails_is_not_taken(runtime: Deployed) -> None:
    streams = Streams(runtime)  # type: ignore[arg-type]
    streams.declare(clicks())
    runtime.asked, runtime.failing = {"users": of("user")}, ("user",)
    (note,) = streams.declare(stream("users", "clicks", min_accuracy=0.5)).notes
    assert tells(note, "clicks", "row by row", "no interval")
    assert runtime.keys == {"clicks": ()}


def test_a_key_is_that_of_what_runs(runtime: Deployed) -> None:
    streams = Streams(runtime)  # type: ignore[arg-type]
    streams.declare(clicks())
    runtime.asked, runtime.broken = {"users": of("user")}, True
    with pytest.raises(TaskManagerError):
        streams.declare(stream("users", "clicks", min_accuracy=0.5))
    runtime.broken = False
    streams.declare(stream("other", "clicks", priority=1))
    assert runtime.keys == {"clicks": ()}


def test_only_a_declaration_changes_a_key(runtime: Deployed) -> None:
    """As it can say what restarts without state."""
    streams = Streams(runtime)  # type: ignore[arg-type]
    streams.declare(clicks())
    streams.declare(stream("users", "clicks", min_accuracy=0.5))
    streams.declare(stream("pages", "clicks", min_accuracy=0.5))
    runtime.asked = {"users": of("user"), "pages": of("page")}
    streams.restrict("users", min_accuracy=0.4)
    streams.remove("pages")
    assert runtime.keys == {"clicks": ()}
    (note,) = streams.declare(stream("more", "clicks", priority=1)).notes
    assert tells(note, "clicks", "user", "users", "users")
    assert runtime.keys == {"clicks": ("user",)}


# -- streams of an earlier kernel --------------------------------------------------------------------------------------


def left(runtime: Deployed) -> None:
    """An earlier kernel ran src, a and b as tasks of their own."""
    tasks = {name: KeptTask([name], "", "", "", upstream=["src"] * (name != "src")) for name in ("src", "a", "b")}
    for name in ("a", "b"):
        tasks[name].edges = [("src", name)]
    runtime.resuming.left.update(tasks)


def test_streams_that_exchanged_rows_start_together_as_tasks_of_their_own(streams: Streams, runtime: Deployed) -> None:
    left(runtime)
    streams.declare(stream("src", topic="rows"))
    streams.declare(stream("a", "src", priority=1))
    assert (set(streams.waiting_streams), runtime.priorities) == ({"src", "a"}, {"query": 1})
    streams.declare(stream("beside", topic="rows", priority=3))
    assert runtime.priorities.keys() == {"query", "beside"}, "it waits for nobody"
    streams.declare(stream("b", "src", priority=2))
    assert streams.waiting_streams == {}
    assert [spec.id for spec in runtime.specs] == ["query", "src", "a", "beside", "b"]


def test_what_reads_a_stream_that_waits_waits_too(streams: Streams, runtime: Deployed) -> None:
    left(runtime)
    streams.declare(stream("src", topic="rows"))
    streams.declare(stream("new", "src", priority=1))
    assert streams.waiting_streams == {"src": ("a", "b"), "new": ("a", "b")}
    assert runtime.priorities.keys() == {"query"}


def test_without_a_stream_that_is_not_declared_again_the_others_start(streams: Streams, runtime: Deployed) -> None:
    left(runtime)
    streams.declare(stream("src", topic="rows"))
    streams.declare(stream("a", "src", priority=1))
    runtime.broken = True
    with pytest.raises(TaskManagerError):
        streams.remove("b")
    assert runtime.resuming.left.keys() == {"src", "a", "b"}, "it was dropped though the others can't start"
    runtime.broken = False
    streams.remove("b")
    assert runtime.priorities.keys() == {"query", "src", "a"}
    assert runtime.resuming.left.keys() == {"src", "a"}


def test_all_that_an_earlier_kernel_left_can_be_dropped(streams: Streams, runtime: Deployed) -> None:
    left(runtime)
    streams.clear()
    assert runtime.resuming.left == {}
    with pytest.raises(ApplicationError):
        streams.remove("b")
