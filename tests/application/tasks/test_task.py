"""Fusion of chains, and the difference between two sets of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.application import fingerprints, graph
from qod_magics.application.application import Application
from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.recipes.recipe import SqlRecipe
from qod_magics.application.streams.sink import Console, KafkaTopic, Memory
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import TopicInput
from qod_magics.application.tasks import TaskSpec, difference, head_of, sources_of, tasks
from qod_magics.errors import ApplicationError
from qod_magics.spark.plans.job import feeds_of, reader
from tests.application.frames import application, stream
from tests.raising import breaks


def chains(app: Application) -> list[tuple[str, ...]]:
    return [spec.members for spec in tasks(app)]


def homes(specs: Sequence[TaskSpec]) -> dict[str, str]:
    """The task in which each stream runs, where none runs in two."""
    return {member: spec.id for spec in specs for member in spec.members}


def test_a_linear_chain_is_one_task_named_as_its_last_stream() -> None:
    (spec,) = tasks(application(stream("a", topic="t"), stream("b", "a"), stream("c", "b", priority=2, sink=Console())))
    assert spec.id == "c"
    assert spec.members == ("a", "b", "c")
    assert list(spec.topics) == ["a"]
    assert spec.path == "a -> b -> c"
    assert spec.is_source
    assert (spec.priority, spec.min_accuracy, spec.sink) == (2, 1.0, Console())


def test_each_topic_of_a_stream_is_a_feed_of_its_own() -> None:
    app = application(stream("a", topic="east, west"), stream("q", "a", priority=1))
    (spec,) = tasks(app)
    assert spec.topics == {f"a:{t}": TopicInput(t) for t in ("east", "west")}
    assert {head_of(name) for name in spec.topics} == {"a"}
    assert feeds_of(spec) == ["a:east>q", "a:west>q"]
    assert all(reader(feed) == "q" for feed in feeds_of(spec))


@pytest.mark.parametrize("names", ["a,a", "a,", "a,b/c", "trips-.*", "pattern:trips-.*"])
def test_topics_are_named_once_and_none_is_a_pattern(names: str) -> None:
    with pytest.raises(ApplicationError):
        TopicInput(names)


def patterned(topics: str, pattern: str = "trips-.*", **more: Any) -> TaskSpec:
    """The task of a query over the topics of a pattern."""
    recipe = PythonRecipe("source")
    (spec,) = tasks(
        application(StreamDeclaration("q", recipe, TopicInput(topics, pattern=pattern, **more), priority=1))
    )
    return spec


def test_a_topic_more_of_a_pattern_is_no_other_work() -> None:
    one, two = patterned("trips-a"), patterned("trips-a,trips-b")
    assert feeds_of(one) == ["q:trips-a>q"]
    assert feeds_of(two) == ["q:trips-a>q", "q:trips-b>q"]
    assert difference([one], [two]).is_empty
    assert fingerprints.of_work(one) == fingerprints.of_work(two)
    assert fingerprints.of_settings(one) == fingerprints.of_settings(two)
    other = patterned("trips-a", "trips-a|tr.*")
    assert difference([one], [other]).replace == ("q",)
    assert fingerprints.of_settings(one) != fingerprints.of_settings(other)


def test_topics_that_match_later_are_read_too() -> None:
    topic = TopicInput("", pattern="trips-.*")
    assert [topic.reads(name) for name in ("trips-x", "trips", "x-trips-x", "qod.trips-x")] == [
        True,
        False,
        False,
        False,
    ]
    all_topics = TopicInput("", pattern=".*")
    assert [all_topics.reads(name) for name in ("qod.0a1b2c.q.out.1", "qod.orders")] == [False, True]
    assert (topic.topics, topic.names, topic.is_several) == ((), ("source",), True)
    for text in ("trips-(", " "):
        with pytest.raises(ApplicationError, check=breaks("regular expression", option="--topic-pattern")):
            TopicInput("", pattern=text)
    with pytest.raises(ApplicationError, check=breaks(option="--malformed")):
        TopicInput("", "n INT", malformed="topic:trips-bad", pattern="trips-.*")
    with pytest.raises(ApplicationError, check=breaks("one topic", option="--starting")):
        TopicInput("", "n INT", '{"0": 1}', pattern="trips-.*")
    with pytest.raises(ApplicationError):  # its rows would come back
        application(
            StreamDeclaration("q", PythonRecipe("source"), TopicInput("trips-a", pattern="trips-.*")),
            stream("w", "q", sink=KafkaTopic("trips-out")),
        )


def test_a_stream_with_two_readers_ends_its_chain() -> None:
    app = application(
        stream("a", topic="t"), stream("b", "a"), stream("c", "b", priority=1), stream("d", "b", min_accuracy=0.5)
    )
    first, left, right = tasks(app)
    assert (first.members, left.members, right.members) == (("a", "b"), ("c",), ("d",))
    assert left.upstream == right.upstream == ("b",)
    assert (first.sink, first.priority, first.min_accuracy, first.is_query) == (None, None, None, False)
    assert (right.sink, right.priority, right.min_accuracy) == (Memory(), 0, 0.5)


def test_a_stream_with_two_inputs_begins_a_chain() -> None:
    app = application(
        stream("a", topic="t"), stream("b", topic="u"), stream("c", "a", "b"), stream("d", "c", priority=1)
    )
    assert chains(app) == [("a",), ("b",), ("c", "d")]
    assert tasks(app)[-1].upstream == ("a", "b")
    assert homes(tasks(app)) == {"a": "a", "b": "b", "c": "d", "d": "d"}


def test_readers_that_wait_do_not_count() -> None:
    app = application(stream("a", topic="t"), stream("b", "a", priority=1), stream("idle", "a"))
    assert chains(app) == [("a", "b")]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"parallelism": 2}, {"parallelism": 1}),
        ({"parallelism": 2}, {"parallelism": 2, "key": "k"}),
        ({"fuse": False}, {}),
        ({}, {"fuse": False}),
        ({"mode": "microbatch"}, {}),
        ({"trigger_s": 1.0}, {"trigger_s": 2.0}),
    ],
)
def test_what_keeps_two_streams_apart(first: dict[str, Any], second: dict[str, Any]) -> None:
    app = application(stream("a", topic="t", **first), stream("b", "a", priority=1, **second))
    assert chains(app) == [("a",), ("b",)]


@pytest.mark.parametrize(
    ("first", "second"),
    [({"parallelism": 2}, {"parallelism": 2}), ({}, {"key": "k"}), ({"mode": "realtime"}, {"mode": "realtime"})],
)
def test_what_does_not(first: dict[str, Any], second: dict[str, Any]) -> None:
    app = application(stream("a", topic="t", **first), stream("b", "a", priority=1, **second))
    assert chains(app) == [("a", "b")]


def test_streams_that_run_apart_can_stay_apart() -> None:
    app = application(stream("a", topic="t"), stream("b", "a"), stream("c", "b", priority=1))
    assert [spec.members for spec in tasks(app, apart={("a", "b")})] == [("a",), ("b", "c")]
    assert [spec.members for spec in tasks(app, apart={("a", "c"), ("gone", "b")})] == [("a", "b", "c")]


def trips(first: dict[str, Any], second: dict[str, Any], **source: Any) -> Application:
    """Two sources, and two queries that read both."""
    return application(
        stream("t", topic="t", **source),
        stream("u", topic="u", **source),
        stream("one", "t", "u", priority=1, **first),
        stream("two", "t", "u", priority=2, **second),
    )


BOTH = {"t": 2, "u": 2}


def test_queries_make_their_inputs_themselves_where_these_are_cheap() -> None:
    one, two = tasks(trips({"parallelism": 2}, {}), inlinable=BOTH)
    assert (one.members, two.members) == (("t", "u", "one"), ("t", "u", "two"))
    assert (one.upstream, one.is_source, one.is_query, one.parallelism) == ((), True, True, 2)
    assert {head: topic.topic for head, topic in one.topics.items()} == {"t": "t", "u": "u"}
    assert one.path == "(t + u) -> one"


@pytest.mark.parametrize(
    ("first", "source"),
    [
        ({"parallelism": 3}, {}),  # two partitions can't be dealt out to three
        ({"parallelism": 2, "key": "k"}, {}),
        ({"fuse": False}, {}),
        ({"mode": "microbatch"}, {}),
        ({"trigger_s": 1.0}, {"trigger_s": 2.0}),
    ],
)
def test_a_query_that_can_not_reads_them_from_tasks_of_their_own(first: dict[str, Any], source: dict[str, Any]) -> None:
    specs = {spec.id: spec for spec in tasks(trips(first, {}, **source), inlinable=BOTH)}
    assert list(specs) == ["t", "u", "one", "two"]
    assert specs["one"].upstream == ("t", "u")
    assert specs["two"].members == ("t", "u", "two")


def test_what_keeps_inputs_from_being_made_by_their_readers() -> None:
    assert chains(trips({}, {})) == [("t",), ("u",), ("one",), ("two",)]
    assert tasks(trips({}, {}), inlinable={"t": 2}) == tasks(trips({}, {}))
    assert tasks(trips({}, {}), inlinable={"t": 2, "u": 0}) == tasks(trips({}, {}))
    assert tasks(trips({}, {}, fuse=False), inlinable=BOTH) == tasks(trips({}, {}, fuse=False))
    wide = trips({}, {}, parallelism=2)
    assert tasks(wide, inlinable=BOTH) == tasks(wide)
    waiting = {("t", "one"), ("u", "one"), ("t", "two")}
    assert tasks(trips({}, {}), waiting, BOTH) == tasks(trips({}, {}))
    twice = application(
        stream("t", topic="t"), stream("u", topic="t"), stream("one", "t", "u", priority=1)
    )  # offsets of one topic are told once a query
    assert tasks(twice, inlinable=BOTH) == tasks(twice)


def test_of_two_views_named_source_one_would_hide_the_other() -> None:
    views = [replace(stream(name, topic=name), recipe=SqlRecipe("SELECT * FROM source")) for name in "tu"]
    app = application(*views, stream("one", "t", "u", priority=1))
    assert tasks(app, inlinable=BOTH) == tasks(app)
    app = application(views[0], stream("u", topic="u"), stream("one", "t", "u", priority=1))
    assert [spec.members for spec in tasks(app, inlinable=BOTH)] == [("t", "u", "one")]


def test_rows_can_be_made_through_several_streams_and_go_on_through_more() -> None:
    app = application(
        stream("t", topic="t"),
        stream("u", topic="u"),
        stream("both", "t", "u"),
        stream("one", "both"),
        stream("last", "one", priority=1),
        stream("two", "both", priority=1),
    )
    specs = tasks(app, inlinable={**BOTH, "both": 2})
    assert [spec.members for spec in specs] == [("t", "u", "both", "one", "last"), ("t", "u", "both", "two")]
    assert specs[0].path == "(t + u) -> both -> one -> last"
    assert tasks(app, inlinable=BOTH)[0].members == ("t", "u", "both")


def test_a_stream_of_topics_alone_is_known_by_all_that_it_is_made_of() -> None:
    app = application(
        stream("t", topic="t"),
        stream("u", topic="u"),
        stream("own"),
        stream("both", "t", "u"),
        stream("mixed", "t", "own"),
        stream("twice", "both", "t", priority=1),
    )
    assert [s.name for s in sources_of(app, "both")] == ["t", "u", "both"]
    assert sources_of(app, "own") == sources_of(app, "mixed") == sources_of(app, "twice") == ()


def test_a_reader_that_joins_changes_nothing_for_the_others() -> None:
    old = application(stream("t", topic="t"), stream("one", "t", priority=1))
    new = old.declare(stream("two", "t", priority=1))
    found = difference(tasks(old), tasks(new, inlinable=BOTH))
    assert (found.unchanged, found.start) == (("one",), ("two",))


def test_triggers_of_a_chain_agree_over_streams_that_state_none() -> None:
    app = application(
        stream("a", topic="t", trigger_s=1.0), stream("b", "a"), stream("c", "b", trigger_s=2.0, priority=1)
    )
    assert [(spec.members, spec.trigger_s) for spec in tasks(app)] == [(("a", "b"), 1.0), (("c",), 2.0)]


@st.composite
def applications(draw: st.DrawFn) -> Application:
    app = Application()
    count = draw(st.integers(1, 9))
    names = [f"s{index}" for index in range(count)]
    inputs: dict[str, tuple[str, ...]] = {
        name: tuple(draw(st.lists(st.sampled_from(names[:index]), unique=True, max_size=3))) if index else ()
        for index, name in enumerate(names)
    }
    read = {upstream for upstreams in inputs.values() for upstream in upstreams}
    for name in names:
        settings: dict[str, Any] = {"parallelism": draw(st.integers(1, 2)), "fuse": draw(st.booleans())}
        if name not in read and draw(st.booleans()):
            settings |= {"priority": draw(st.integers(0, 3)), "min_accuracy": draw(st.none() | st.floats(0, 1))}
        if inputs[name]:
            settings["key"] = draw(st.none() | st.just("k"))
        app = app.declare(stream(name, *inputs[name], topic=None if inputs[name] else "t", **settings))
    return app


@given(applications())
def test_every_live_stream_is_in_just_one_task_and_no_other_is(app: Application) -> None:
    members = [member for spec in tasks(app) for member in spec.members]
    assert sorted(members) == sorted(app.live)
    assert sorted((*app.live, *app.waiting)) == sorted(app.names)


@given(applications())
def test_tasks_form_a_dag_in_order(app: Application) -> None:
    seen: set[str] = set()
    for spec in tasks(app):
        assert set(spec.upstream) <= seen
        seen.add(spec.id)


@given(applications())
def test_restrictions_are_on_exactly_the_tasks_without_downstream(app: Application) -> None:
    specs = tasks(app)
    read = {upstream for spec in specs for upstream in spec.upstream}
    for spec in specs:
        stated = (spec.priority is not None, spec.min_accuracy is not None, spec.sink is not None)
        assert set(stated) == {spec.id not in read}


@given(applications())
def test_fusion_keeps_who_reaches_whom(app: Application) -> None:
    specs = tasks(app)
    home = homes(specs)
    upstreams = {spec.id: spec.upstream for spec in specs}
    for name in app.live:
        by_streams = {home[ancestor] for ancestor in graph.ancestors(app.upstreams, (name,))}
        assert by_streams == set(graph.ancestors(upstreams, (home[name],)))


@given(applications())
def test_inner_streams_of_a_chain_have_one_reader_and_equal_settings(app: Application) -> None:
    for spec in tasks(app):
        for one, following in zip(spec.streams, spec.streams[1:], strict=False):
            assert following.upstream == (one.name,)
            assert [name for name in app.consumers[one.name] if name in app.live] == [following.name]
            assert one.parallelism == following.parallelism
            assert one.fuse
            assert following.fuse


@given(applications(), st.integers(0, 2))
def test_every_live_stream_runs_somewhere_and_reaches_the_same_queries(app: Application, dealt: int) -> None:
    specs = tasks(app, inlinable=dict.fromkeys(app.names, dealt))
    seen: set[str] = set()
    for spec in specs:
        assert set(spec.upstream) <= seen
        assert set(spec.upstream).isdisjoint(spec.members)
        seen.add(spec.id)
    assert {member for spec in specs for member in spec.members} == set(app.live)
    assert [spec.id for spec in specs if spec.is_query] == [spec.id for spec in tasks(app) if spec.is_query]
    upstreams = {spec.id: spec.upstream for spec in specs}
    members = {spec.id: set(spec.members) for spec in specs}
    for query in (spec.id for spec in specs if spec.is_query):
        made_of = set().union(*(members[task] for task in graph.ancestors(upstreams, (query,))))
        assert made_of == set(graph.ancestors(app.upstreams, (query,)))


@given(applications(), applications())
def test_a_difference_puts_every_task_in_one_group(old: Application, new: Application) -> None:
    found = difference(tasks(old), tasks(new))
    ids = [*found.unchanged, *found.start, *found.restart, *found.rebuild, *found.replace]
    assert sorted(ids) == sorted(spec.id for spec in tasks(new))
    assert set(found.stop) == {spec.id for spec in tasks(old)} - set(ids)
    assert difference(tasks(old), tasks(old)).is_empty


def changed(old: Application, new: Application) -> dict[str, tuple[str, ...]]:
    found = difference(tasks(old), tasks(new))
    groups = ("unchanged", "start", "stop", "restart", "rebuild", "replace")
    return {group: getattr(found, group) for group in groups if getattr(found, group)}


FORK = application(
    stream("a", topic="t"),
    stream("b", "a", priority=1),
    stream("c", "a", priority=2),
)


def test_a_new_reader_restarts_its_input_and_nothing_else() -> None:
    new = FORK.declare(stream("d", "a", priority=0))
    assert changed(FORK, new) == {"restart": ("a",), "unchanged": ("b", "c"), "start": ("d",)}
    assert changed(new, FORK) == {"restart": ("a",), "unchanged": ("b", "c"), "stop": ("d",)}


def test_a_new_reader_of_a_chain_breaks_it() -> None:
    old = application(stream("a", topic="t"), stream("b", "a", priority=1))
    new = old.declare(stream("c", "a", priority=1))
    assert changed(old, new) == {"start": ("a", "c"), "replace": ("b",)}
    assert changed(new, old) == {"replace": ("b",), "stop": ("a", "c")}


def test_other_restrictions_change_nothing_that_runs() -> None:
    assert changed(FORK, FORK.restrict("b", priority=9, min_accuracy=0.1)) == {"unchanged": ("a", "b", "c")}


def test_another_recipe_replaces_the_task_and_rebuilds_what_it_feeds() -> None:
    new = FORK.declare(replace(FORK["a"], recipe=PythonRecipe("source.limit(1)")))
    assert changed(FORK, new) == {"replace": ("a",), "rebuild": ("b", "c")}
    new = FORK.declare(replace(FORK["b"], recipe=PythonRecipe("a.limit(1)")))
    assert changed(FORK, new) == {"unchanged": ("a", "c"), "replace": ("b",)}


def test_the_same_cell_again_changes_nothing() -> None:
    assert changed(FORK, FORK.declare(stream("a", topic="t"))) == {"unchanged": ("a", "b", "c")}


def test_a_trigger_restarts_and_a_sink_replaces() -> None:
    assert changed(FORK, FORK.declare(replace(FORK["b"], trigger_s=3.0)))["restart"] == ("b",)
    assert changed(FORK, FORK.declare(replace(FORK["b"], max_latency_s=0.5)))["restart"] == ("b",)
    assert changed(FORK, FORK.declare(replace(FORK["b"], max_latency_s=5.0, utility=3.0)))["unchanged"] == (
        "a",
        "b",
        "c",
    )
    hurried = FORK.declare(replace(FORK["b"], max_latency_s=0.5))
    assert changed(hurried, hurried.declare(replace(FORK["b"], max_latency_s=0.1)))["unchanged"] == ("a", "b", "c")
    assert changed(FORK, FORK.declare(replace(FORK["b"], sink=Console())))["replace"] == ("b",)
    assert changed(FORK, FORK.declare(replace(FORK["b"], sink=Memory())))["unchanged"] == ("a", "b", "c")


def test_more_partitions_restart_a_reader_and_its_input() -> None:
    new = FORK.declare(replace(FORK["b"], max_parallelism=4))
    assert changed(FORK, new) == {"restart": ("a", "b"), "unchanged": ("c",)}
    by_key = FORK.declare(replace(FORK["b"], parallelism=3, key="k"))
    more = by_key.declare(replace(by_key["b"], max_parallelism=4))
    assert changed(by_key, more) == {"restart": ("a",), "replace": ("b",), "unchanged": ("c",)}


def test_tasks_have_the_partitions_that_their_streams_state() -> None:
    def only(**settings: Any) -> TaskSpec:
        return tasks(application(stream("a", topic="t"), stream("b", "a", fuse=False, priority=1, **settings)))[-1]

    assert (only().partitions, only().max_parallelism, only().stated_max_parallelism) == (1, 8, None)
    assert (only(parallelism=3).partitions, only(parallelism=9).max_parallelism) == (3, 9)
    stated = only(parallelism=2, max_parallelism=4)
    assert (stated.partitions, stated.max_parallelism, stated.stated_max_parallelism) == (4, 4, 4)


def test_a_reader_spread_otherwise_is_replaced_and_its_input_restarted() -> None:
    new = FORK.declare(replace(FORK["b"], parallelism=2))
    assert changed(FORK, new) == {"restart": ("a",), "replace": ("b",), "unchanged": ("c",)}
