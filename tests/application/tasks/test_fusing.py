"""Which neighbours can be one query, and where tasks can be unfused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.application.tasks import TaskSpec, fused, fused_edges, tasks, unfused, why_not_fused, why_not_unfused
from tests.application.frames import application, stream
from tests.texts import tells

ALL = (("a", "b"), ("b", "c"), ("c", "d"))


def chain(apart: Any = ALL, **settings: dict[str, Any]) -> dict[str, TaskSpec]:
    """a, which reads a topic, to d; `apart`: the streams that are topics. `settings`: of each."""
    streams = [stream("a", topic="t", **settings.get("a", {}))]
    streams += [stream(name, before, **settings.get(name, {})) for before, name in ALL[:2]]
    streams.append(stream("d", "c", **{"priority": 1, **settings.get("d", {})}))
    return {spec.id: spec for spec in tasks(application(*streams), apart)}


@given(apart=st.sets(st.sampled_from(ALL)), edge=st.sampled_from(ALL))
def test_what_is_parted_is_what_was_fused(apart: set[tuple[str, str]], edge: tuple[str, str]) -> None:
    specs = chain(apart)
    within = [inner for spec in specs.values() for inner in fused_edges(spec)]
    assert within == [each for each in ALL if each not in apart]
    if edge in apart:
        first, second = (next(spec for spec in specs.values() if name in spec.members) for name in edge)
        assert why_not_fused(first, second, specs.values()) == ""
        one = fused(first, second)
        assert one == chain(apart - {edge})[one.id]  # as if it were declared anew
        assert unfused(one, edge) == (first, second)


def test_a_stream_that_joins_others_parts_only_behind_the_join() -> None:
    (spec,) = tasks(
        application(
            stream("a", topic="t"), stream("b", topic="u"), stream("c", "a", "b"), stream("d", "c", priority=1)
        ),
        inlinable={"a": 1, "b": 1},
    )
    assert spec.members == ("a", "b", "c", "d")
    assert fused_edges(spec) == (("c", "d"),)
    first, second = unfused(spec, ("c", "d"))
    assert (first.members, first.is_query, second.members, second.is_query) == (("a", "b", "c"), False, ("d",), True)


def test_a_branch_of_a_join_is_not_parted_from_it() -> None:
    branches = [stream("a", topic="t"), stream("m", "a"), stream("b", topic="u"), stream("n", "b")]
    (spec,) = tasks(application(*branches, stream("c", "m", "n", priority=1)), inlinable={"m": 1, "n": 1})
    assert spec.members == ("a", "m", "b", "n", "c")
    assert fused_edges(spec) == ()


@pytest.mark.parametrize(
    ("pair", "settings", "why"),
    [
        (("a", "c"), {}, "c"),
        (("a", "b"), {"b": {"fuse": False}}, "--no-fuse"),
        (("a", "b"), {"a": {"fuse": False}, "b": {"fuse": False}}, "a, b"),
        (("a", "b"), {"b": {"mode": "microbatch"}}, "auto, microbatch"),
        (("a", "b"), {"a": {"trigger_s": 1.0}, "b": {"trigger_s": 2.0}}, "1 s, 2 s"),
        (("a", "b"), {"b": {"parallelism": 2}}, "parallelism 1"),
        (("b", "c"), {"b": {"parallelism": 2}, "c": {"parallelism": 2, "key": "k"}}, "--key k"),
    ],
)
def test_why_not(pair: tuple[str, str], settings: dict[str, Any], why: str) -> None:
    specs = chain(**settings)
    assert why in why_not_fused(specs[pair[0]], specs[pair[1]], specs.values())


@pytest.mark.parametrize("instances", [1, 2])
def test_a_reader_whose_instances_have_keys_of_their_own_stays_apart(instances: int) -> None:
    """As declared, it has one instance; it has been scaled."""
    specs = chain(c={"key": "k"})
    why = why_not_fused(specs["b"], specs["c"], specs.values(), instances)
    assert ("--key k" in why) == bool(why) == (instances > 1)


def test_a_stream_with_several_readers_and_a_reader_with_several_inputs_stay_apart() -> None:
    read = [stream("a", topic="t"), stream("b", "a", priority=1), stream("c", "a", priority=1)]
    specs = {spec.id: spec for spec in tasks(application(*read))}
    assert tells(why_not_fused(specs["a"], specs["b"], specs.values()), "b, c", "a")
    joined = [stream("a", topic="t"), stream("b", topic="u"), stream("c", "a", "b", priority=1)]
    specs = {spec.id: spec for spec in tasks(application(*joined))}
    assert tells(why_not_fused(specs["a"], specs["c"], specs.values()), "c", "inputs", "a")


def test_a_source_of_its_own_is_not_parted_from_its_readers() -> None:
    (spec,) = tasks(application(stream("a"), stream("b", "a", priority=1)))
    assert fused_edges(spec) == (("a", "b"),)
    assert tells(why_not_unfused(spec, ("a", "b"), [spec]), "b", "source", "offsets")


def test_a_stream_that_several_tasks_compute_becomes_a_task_once() -> None:
    read = [stream("a", topic="t"), stream("m", "a"), stream("u", "m", priority=1), stream("v", "m", priority=1)]
    one, other = tasks(application(*read), inlinable={"m": 1})
    assert (one.members, other.members) == (("a", "m", "u"), ("a", "m", "v"))
    assert tells(why_not_unfused(one, ("a", "m"), (one, other)), "a", "v")
    assert why_not_unfused(one, ("m", "u"), (one, other)) == ""
    now = (*unfused(one, ("m", "u")), other)
    assert tells(why_not_unfused(other, ("m", "v"), now), "m", "v")


def test_instances_that_a_topic_between_them_would_mix_are_not_unfused() -> None:
    (spec,) = chain((), **{name: {"parallelism": 2} for name in "abcd"}).values()
    at = ("b", "c")
    assert why_not_unfused(spec, at, [spec], 2) == ""
    assert tells(why_not_unfused(spec, at, [spec], 3), 3, "b", 2)
    assert tells(why_not_unfused(spec, at, [spec], 2, True), "state", 2)
    for key, refused in ((None, True), ("k", False)):
        (one,) = chain((), c={"max_parallelism": 3, "key": key}).values()
        assert (tells(why_not_unfused(one, at, [one], 1, True), "state", 3)) is refused
    (alone,) = chain(()).values()
    assert why_not_unfused(alone, at, [alone], 1, keeps_state=True) == ""
    read = [stream("a", topic="t"), stream("u", "a", priority=1, parallelism=2), stream("v", "a", priority=1)]
    wide, other = tasks(application(*read), inlinable={"a": 2})
    assert tells(why_not_unfused(wide, ("a", "u"), [wide, other], 2), 2, "a", 1)
