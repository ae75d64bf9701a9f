"""Streams together."""

from __future__ import annotations

from itertools import pairwise

import pytest

from qod_magics.application.application import Application
from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.streams.sink import KafkaTopic, Memory, Parquet
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import TopicInput
from qod_magics.errors import ApplicationError
from tests.application.frames import application, stream
from tests.raising import breaks
from tests.texts import tells


def refusal(app: Application, declaration: StreamDeclaration) -> str:
    before = app.streams
    with pytest.raises(ApplicationError) as caught:
        app.declare(declaration)
    assert app.streams == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_only_queries_lend() -> None:
    app = application(stream("a", topic="t"), stream("b", "a", lend=True, key="k", parallelism=2))
    with pytest.raises(ApplicationError, check=breaks("query", name="b", option="--lend")):
        app.declare(stream("c", "b", priority=1))


def test_queries_live_and_waiting_streams() -> None:
    app = application(
        stream("trips", topic="t"),
        stream("busy", "trips", priority=1),
        stream("seen", "trips", sink=Memory()),
        stream("idle", "trips"),
        stream("alone", topic="u"),
    )
    assert app.queries == ("busy", "seen")
    assert app.live == ("trips", "busy", "seen")
    assert app.waiting == ("idle", "alone")
    assert app.consumers["trips"] == ("busy", "seen", "idle")


def test_a_stream_that_waited_lives_once_a_query_reads_it() -> None:
    app = application(stream("idle", topic="t"))
    assert app.live == ()
    assert app.declare(stream("q", "idle", min_accuracy=0.0)).live == ("idle", "q")


def test_live_streams_come_after_their_inputs_also_when_replaced() -> None:
    app = application(stream("q", topic="t", priority=1), stream("a", topic="t")).declare(stream("q", "a", priority=1))
    assert app.names == ("q", "a")
    assert app.live == ("a", "q")


def test_declaring_a_name_again_replaces_the_stream_in_its_place() -> None:
    app = application(stream("a", topic="t"), stream("b", topic="t")).declare(stream("a", topic="u"))
    assert app.names == ("a", "b")
    assert app["a"].topic == TopicInput("u")


def test_an_unknown_input_gets_the_nearest_name() -> None:
    app = application(stream("trips", topic="t"))
    assert tells(refusal(app, stream("q", "trps")), "'q'", "'trps'", "'trips'")


def test_a_cycle_is_named_along_the_rows() -> None:
    app = application(stream("a", topic="t"), stream("b", "a"), stream("c", "b"))
    said = refusal(app, stream("a", "c"))
    assert any(f"cycle: {cycle};" in said for cycle in ("a -> b -> c -> a", "b -> c -> a -> b", "c -> a -> b -> c"))
    assert "cycle: a -> a;" in refusal(app, stream("a", "a"))


def test_only_streams_that_nobody_reads_have_restrictions_or_sinks() -> None:
    app = application(stream("a", topic="t", sink=Memory(), priority=2))
    said = refusal(app, stream("b", "a"))
    assert tells(said, "'b'", "'a'", "--sink memory --priority 2")
    assert "a_rows --from a --sink memory --priority 2" in said
    app = application(stream("a", topic="t"), stream("b", "a"))
    assert "states --min-accuracy 0.5" in refusal(app, stream("a", topic="t", min_accuracy=0.5))
    with pytest.raises(ApplicationError, check=breaks("read by nobody")):
        app.restrict("a", priority=1)


def test_names_that_differ_only_in_case_are_one_in_sql() -> None:
    assert tells(refusal(application(stream("trips", topic="t")), stream("Trips", topic="u")), "Trips")


def test_a_stream_may_be_called_as_its_own_topic() -> None:
    declaration = StreamDeclaration("taxi", PythonRecipe("taxi.limit(1)"), TopicInput("taxi"))
    assert application(declaration).names == ("taxi",)


def test_a_name_that_is_a_topic_and_another_stream_is_ambiguous_unless_the_recipe_says_source() -> None:
    app = application(stream("taxi", topic="taxi"))
    unclear = StreamDeclaration("other", PythonRecipe("taxi.limit(1)"), TopicInput("taxi"))
    assert "`source`" in refusal(app, unclear)
    assert "other" in app.declare(stream("other", topic="taxi"))


def test_inputs_must_be_read() -> None:
    app = application(stream("a", topic="t"), stream("b", topic="t"))
    half = StreamDeclaration("q", PythonRecipe("a.limit(1)"), ("a", "b"))
    assert "'b'" in refusal(app, half)
    none = StreamDeclaration("q", PythonRecipe("spark.table('x')"), TopicInput("taxi"))
    assert tells(refusal(app, none), "`source`", "`taxi`")


def test_what_the_application_reads_as_a_topic_it_may_not_write() -> None:
    app = application(stream("a", topic="t"))
    assert tells(refusal(app, stream("q", "a", sink=KafkaTopic("t"))), "'q'", "'t'", "'a'")
    assert tells(refusal(app, stream("q", topic="u", sink=KafkaTopic("u"))), "'q'", "'u'", "'q'")


def test_two_queries_may_write_one_topic_but_not_one_directory() -> None:
    app = application(
        stream("a", topic="t"),
        stream("b", "a", sink=KafkaTopic("out")),
        stream("c", "a", sink=KafkaTopic("out")),
        stream("d", "a", sink=Parquet("/out/x")),
    )
    assert tells(refusal(app, stream("e", "a", sink=Parquet("/out/x/"))), "'d'", "'e'", "'/out/x'")


def test_a_stream_that_others_read_stays() -> None:
    app = application(stream("a", topic="t"), stream("b", "a"), stream("c", "a"))
    with pytest.raises(ApplicationError, check=breaks("read by nobody", name="a")):
        app.remove("a")
    with pytest.raises(ApplicationError, check=breaks("read by nobody", name="a")):
        app.remove("c").remove("a")
    assert app.remove("b").remove("c").remove("a") == Application()


def test_unknown_names_get_the_nearest() -> None:
    app = application(stream("trips", topic="t"))
    for change in (app.remove, lambda name: app.restrict(name, priority=1)):
        with pytest.raises(ApplicationError, check=breaks("exists", name="trip")):
            change("trip")


def test_restrict_changes_what_it_is_told_and_makes_a_waiting_stream_a_query() -> None:
    app = application(stream("q", topic="t")).restrict("q", priority=3)
    assert (app["q"].priority, app["q"].min_accuracy) == (3, None)
    assert app.queries == ("q",)
    app = app.restrict("q", min_accuracy=0.0)
    assert (app["q"].priority, app["q"].min_accuracy) == (3, 0.0)
    with pytest.raises(ApplicationError, check=breaks("between 0 and 1")):
        app.restrict("q", min_accuracy=2)
    with pytest.raises(ApplicationError, check=breaks("a change")):
        app.restrict("q")


def test_an_application_that_exists_is_valid() -> None:
    with pytest.raises(ApplicationError, check=breaks("declared")):
        Application((stream("q", "nobody"),))
    with pytest.raises(ApplicationError, check=breaks("unique")):
        Application((stream("q", topic="t"), stream("q", topic="t")))


def test_what_waits_can_be_tried_as_if_it_were_read() -> None:
    trips, zones = stream("trips", topic="trips"), stream("zones", topic="zones")
    busy, fast = stream("busy", "trips"), stream("fast", "busy", "zones")
    query = stream("query", "trips", priority=3)
    whole = application(trips, zones, busy, query, fast)
    tried = whole.awaited("busy")
    assert tried.names == ("trips", "zones", "busy", "fast")
    assert tried.queries == ("fast",)
    assert tried.waiting == ()
    assert whole.awaited("zones") == whole.awaited("fast") == tried
    assert whole.awaited("trips") == whole.awaited("query") == Application(), "these run"
    assert application(trips).awaited("trips").queries == ("trips",)


@pytest.mark.parametrize("near", ["trps", "q"])
def test_a_stream_is_near_another_that_is_declared(near: str) -> None:
    app = application(stream("trips", topic="t"))
    with pytest.raises(ApplicationError, check=breaks("exists", name=near)):
        app.declare(stream("q", "trips", near=near))
    apart = app.declare(stream("p", topic="u")).declare(stream("q", "trips", priority=1, near="p"))
    assert apart.remove("p")["q"].near == "p"  # a wish, and no input


def rejecting(name: str, topic: str, rejects: str | None = None) -> StreamDeclaration:
    malformed = None if rejects is None else f"topic:{rejects}"
    return StreamDeclaration(name, PythonRecipe("source"), TopicInput(topic, "n INT", malformed=malformed))


@pytest.mark.parametrize("between", [(), ("m",), ("m", "n")])
def test_rejects_may_not_come_back_to_their_topic(between: tuple[str, ...]) -> None:
    topics = ("t", *between, "r")
    chain = [rejecting(f"s_{a}", a, b) for a, b in pairwise(topics)]
    app = application(*chain, rejecting("reader", "r"), rejecting("other", "t", "r"))
    with pytest.raises(ApplicationError) as caught:
        app.declare(rejecting("back", "r", "t"))
    assert (caught.value.option, caught.value.rule) == ("--malformed", "acyclic")
    assert set(topics) == set(caught.value.value)
