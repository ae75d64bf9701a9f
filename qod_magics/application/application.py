"""All the streams of a session, always a valid DAG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

from qod_magics.application import graph
from qod_magics.application.graph import SOURCE, topic_alias
from qod_magics.application.streams.options import RESTRICTIONS
from qod_magics.application.streams.sink import Files, KafkaTopic
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.errors import ApplicationError, nearest

# --- Rules across streams: each raises ApplicationError, one line -----------------------------------------------------

Streams = Sequence[StreamDeclaration]


def check_application(streams: Streams) -> None:
    """Check all rules of an application; each declaration by itself is valid already."""
    _check_distinct_names(streams)
    _check_inputs_exist(streams)
    _check_acyclic(streams)
    _check_demands(streams)
    _check_recipes(streams)
    _check_rejects(streams)
    _check_sinks(streams)
    _check_lending(streams)


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
        raise ApplicationError(f"the stream {twice!r} is there twice", name=twice, rule="unique")


def _check_inputs_exist(streams: Streams) -> None:
    names = {stream.name for stream in streams}
    for stream in streams:
        for upstream in stream.upstream:
            if upstream not in names:
                hint = nearest(upstream, names - {stream.name})
                raise ApplicationError(
                    f"{stream.name!r} reads {upstream!r}, which is not declared.{hint}", rule="declared"
                )


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
                f"stream of their own: {stream.name}_rows --from {stream.name} {stream.demands}",
                rule="read by nobody",
            )


def _check_recipes(streams: Streams) -> None:
    names = {stream.name for stream in streams}
    for stream in streams:
        _check_topic_alias(stream, names)
        _check_inputs_read(stream)


def _check_topic_alias(stream: StreamDeclaration, names: set[str]) -> None:
    if stream.topic is None:
        return
    alias = topic_alias(stream.topic.topic) if stream.topic.pattern is None else None
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


def _check_rejects(streams: Streams) -> None:
    """Refuse topics whose malformed records come back to them. A stream may read rejects."""
    sources: dict[str, tuple[str, ...]] = {}
    for topic in (stream.topic for stream in streams if stream.topic is not None):
        if topic.rejects is not None:
            sources[topic.rejects] = (*sources.get(topic.rejects, ()), *topic.topics)
    patterned = [stream.topic for stream in streams if stream.topic is not None and stream.topic.pattern is not None]
    for topic in patterned:  # it may read rejects of another stream, but not in a circle
        if topic.rejects is not None:
            matched = [rejects for rejects in sources if topic.reads(rejects)]
            sources[topic.rejects] = (*sources[topic.rejects], *matched)
    if topics := graph.cycle(sources):
        raise ApplicationError(
            f"--malformed must name topics that don't form a cycle, got {' -> '.join(topics)}; take another",
            value=topics,
            option="--malformed",
            rule="acyclic",
        )


def _check_sinks(streams: Streams) -> None:
    writers: dict[str, str] = {}
    for stream in streams:
        readers = [
            each.name
            for each in streams
            if isinstance(stream.sink, KafkaTopic) and each.topic is not None and each.topic.reads(stream.sink.topic)
        ]
        if isinstance(stream.sink, KafkaTopic) and readers:
            topic, reader = stream.sink.topic, readers[-1]
            raise ApplicationError(
                f"{stream.name!r} writes the topic {topic!r}, which {reader!r} reads: rows would loop through Kafka. "
                f"Let {reader!r} read a stream with --from, or take another topic"
            )
        if isinstance(stream.sink, Files):
            other = writers.setdefault(stream.sink.path.rstrip("/"), stream.name)
            if other != stream.name:
                raise ApplicationError(
                    f"{other!r} and {stream.name!r} both write {stream.sink.path!r}: give each a directory of its own"
                )


def _check_lending(streams: Streams) -> None:
    lending = {stream.name for stream in streams if stream.lend}
    for reader in streams:
        for name in lending.intersection(reader.upstream):
            raise ApplicationError(
                f"--lend of {name!r} must be of a query, whose results merge the parts of a group, got a stream that "
                f"{reader.name!r} reads; leave --lend out",
                name=name,
                option="--lend",
                rule="query",
            )


@dataclass(frozen=True)
class Application:
    """The declared streams in the order of their first declaration. Validated on creation: see `validation`.

    `declare`, `remove` and `restrict` return a new Application or raise ApplicationError, one line.
    """

    streams: tuple[StreamDeclaration, ...] = ()

    def __post_init__(self) -> None:
        check_application(self.streams)

    def declare(self, declaration: StreamDeclaration) -> Application:
        """Add this stream, or replace the one of its name. Raises ApplicationError."""
        near = declaration.near
        if near is not None and (near == declaration.name or near not in self):
            raise ApplicationError(
                f"near must be another stream that is declared, got {near!r}.{nearest(near, self.names)}",
                name=near,
                value=near,
                rule="exists",
            )
        if declaration.name not in self:
            return Application((*self.streams, declaration))
        return Application(tuple(declaration if s.name == declaration.name else s for s in self.streams))

    def remove(self, name: str) -> Application:
        """Remove this stream. Raises ApplicationError for an unknown name, and while others read it."""
        self[name]
        if self.consumers[name]:
            readers = ", ".join(repr(reader) for reader in self.consumers[name])
            raise ApplicationError(
                f"{name!r} can't be removed: {readers} read{'s'[len(self.consumers[name]) - 1 :]} it",
                name=name,
                rule="read by nobody",
            )
        return Application(tuple(stream for stream in self.streams if stream.name != name))

    def restrict(self, name: str, **given: Any) -> Application:
        """Change the restrictions of a query, by the names of their options; None leaves one as it is, and infinity
        removes one that is removable. Raises ApplicationError."""
        stream, removable = self[name], {row.name for row in RESTRICTIONS if row.removable}
        wanted = {key: value for key, value in given.items() if value is not None}
        if not wanted:
            raise ApplicationError(
                f"say what to change of {name!r}: a priority, a minimum accuracy, a maximum latency, a utility "
                "or a minimum juice",
                rule="a change",
            )
        if wanted.keys() <= removable and name not in self.queries:
            raise ApplicationError(
                f"{name!r} is no query, so it has no maximum latency, utility or minimum juice; the queries are "
                f"{', '.join(self.queries) or 'none so far'}",
                name=name,
                rule="a query",
            )
        removed = {key: None for key in wanted.keys() & removable if wanted[key] == inf}
        return self.declare(replace(stream, **wanted | removed))

    def __getitem__(self, name: str) -> StreamDeclaration:
        """Return the stream of this name. Raises ApplicationError with the nearest name."""
        if name not in self._by_name:
            raise ApplicationError(f"there is no stream {name!r}.{nearest(name, self.names)}", name=name, rule="exists")
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self.upstreams

    def __iter__(self) -> Iterator[StreamDeclaration]:
        return iter(self.streams)

    def __len__(self) -> int:
        return len(self.streams)

    @cached_property
    def _by_name(self) -> Mapping[str, StreamDeclaration]:
        return {stream.name: stream for stream in self.streams}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the names of all streams, in order."""
        return tuple(stream.name for stream in self.streams)

    @cached_property
    def upstreams(self) -> Mapping[str, tuple[str, ...]]:
        """Return the streams that each stream reads."""
        return {stream.name: stream.upstream for stream in self.streams}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """Return the streams that read each stream."""
        return graph.consumers(self.upstreams)

    @cached_property
    def queries(self) -> tuple[str, ...]:
        """Return the streams that nobody reads and that state a sink or a restriction."""
        return tuple(s.name for s in self.streams if not self.consumers[s.name] and s.demands)

    @cached_property
    def live(self) -> tuple[str, ...]:
        """Return the streams that run: queries and everything upstream of them, inputs first."""
        needed = graph.ancestors(self.upstreams, self.queries)
        return tuple(name for name in graph.ordered(self.upstreams) if name in needed)

    @cached_property
    def waiting(self) -> tuple[str, ...]:
        """Return the streams that do not run until a query reads them."""
        live = frozenset(self.live)
        return tuple(name for name in self.names if name not in live)

    def awaited(self, name: str) -> Application:
        """Return what would run to serve a waiting stream: the stream, its waiting readers (the last ones as queries),
        and everything upstream of them. Empty for a stream that does not wait."""
        if name not in self.waiting:
            return Application()
        last = {w for w in self.waiting if not self.consumers[w] and name in graph.ancestors(self.upstreams, [w])}
        needed = graph.ancestors(self.upstreams, last)
        streams = (replace(stream, priority=0) if stream.name in last else stream for stream in self.streams)
        return Application(tuple(stream for stream in streams if stream.name in needed))
