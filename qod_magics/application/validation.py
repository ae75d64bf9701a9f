"""Rules across the streams of an application. Every rule raises ApplicationError, one line."""

from __future__ import annotations

from collections.abc import Sequence

from qod_magics.application import graph
from qod_magics.application.names import SOURCE, topic_alias
from qod_magics.application.streams.sink import KafkaTopic, Parquet
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.errors import ApplicationError, nearest

Streams = Sequence[StreamDeclaration]


def check_application(streams: Streams) -> None:
    """Check all the rules; a declaration by itself is valid already."""
    _check_distinct_names(streams)
    _check_inputs_exist(streams)
    _check_acyclic(streams)
    _check_demands(streams)
    _check_recipes(streams)
    _check_sinks(streams)


def _check_distinct_names(streams: Streams) -> None:
    seen: dict[str, str] = {}
    for stream in streams:
        other = seen.setdefault(stream.name.casefold(), stream.name)
        if other != stream.name:
            raise ApplicationError(
                f"{stream.name!r} and {other!r} differ only in case, which SQL ignores: take another name"
            )
    names = [stream.name for stream in streams]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ApplicationError(f"the stream {twice!r} is there twice")


def _check_inputs_exist(streams: Streams) -> None:
    names = {stream.name for stream in streams}
    for stream in streams:
        for upstream in stream.upstream:
            if upstream not in names:
                hint = nearest(upstream, names - {stream.name})
                raise ApplicationError(f"{stream.name!r} reads {upstream!r}, which is not declared.{hint}")


def _check_acyclic(streams: Streams) -> None:
    names = graph.cycle({stream.name: stream.upstream for stream in streams})
    if names:
        raise ApplicationError(f"the streams form a cycle: {' -> '.join(names)}; rows must flow one way")


def _check_demands(streams: Streams) -> None:
    readers = graph.consumers({stream.name: stream.upstream for stream in streams})
    for stream in streams:
        if readers[stream.name] and stream.demands:
            raise ApplicationError(
                f"{readers[stream.name][0]!r} reads {stream.name!r}, which states {stream.demands}: only a stream that "
                f"nobody reads has a sink or restrictions. Declare {stream.name!r} without, and write its rows from a "
                f"stream of their own: {stream.name}_rows --from {stream.name} {stream.demands}"
            )


def _check_recipes(streams: Streams) -> None:
    names = {stream.name for stream in streams}
    for stream in streams:
        _check_topic_alias(stream, names)
        _check_inputs_read(stream)


def _check_topic_alias(stream: StreamDeclaration, names: set[str]) -> None:
    if stream.topic is None:
        return
    alias = topic_alias(stream.topic.topic)
    if alias not in names - {stream.name} or alias is None:
        return
    if SOURCE in stream.recipe.missing((SOURCE,)) and alias not in stream.recipe.missing((alias,)):
        raise ApplicationError(
            f"{alias!r} in the recipe of {stream.name!r} could be its topic or the stream of that name: write "
            f"`{SOURCE}` for the topic, or --from {alias} for the stream"
        )


def _check_inputs_read(stream: StreamDeclaration) -> None:
    missing = stream.recipe.missing(stream.input_names)
    if stream.topic is not None:
        if len(missing) == len(stream.input_names):
            called = " or ".join(f"`{name}`" for name in stream.input_names)
            raise ApplicationError(f"the recipe of {stream.name!r} never reads its topic: it is called {called}")
    elif missing:
        raise ApplicationError(
            f"the recipe of {stream.name!r} never reads its input {missing[0]!r}: use it, or leave it out of --from"
        )


def _check_sinks(streams: Streams) -> None:
    readers = {stream.topic.topic: stream.name for stream in streams if stream.topic is not None}
    writers: dict[str, str] = {}
    for stream in streams:
        if isinstance(stream.sink, KafkaTopic) and stream.sink.topic in readers:
            topic, reader = stream.sink.topic, readers[stream.sink.topic]
            raise ApplicationError(
                f"{stream.name!r} writes the topic {topic!r}, which {reader!r} reads: rows would loop through Kafka. "
                f"Let {reader!r} read a stream with --from, or take another topic"
            )
        if isinstance(stream.sink, Parquet):
            other = writers.setdefault(stream.sink.path.rstrip("/"), stream.name)
            if other != stream.name:
                raise ApplicationError(
                    f"{other!r} and {stream.name!r} both write {stream.sink.path!r}: give each a directory of its own"
                )
