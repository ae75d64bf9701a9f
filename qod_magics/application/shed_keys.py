"""The keys by which topics are shed with `--shed-by auto`: such that the results of their queries are whole. Pure.

Each join, session and list of different values of a query asks that rows be shed by columns that it has: a join of two
streams, that both be by columns that it equates. A stream is shed by the columns that all those have which concern it,
so that each of them is by key; row by row, if they have none in common.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from qod_magics.application import graph
from qod_magics.application.application import Application
from qod_magics.application.streams.topic_input import AUTO


class Place(NamedTuple):
    """A column of a topic."""

    of: str  #: the topic, or the stream that reads it
    column: str


#: What one operator needs: rows that are equal in some of these, in one column or in one of each side. What belongs
#: together is shed by together.
Ask: TypeAlias = tuple[tuple[Place, ...], ...]
#: By the stream of a topic, the columns by which it is shed; (): row by row.
Keys: TypeAlias = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Decision:
    """By what the streams are shed that are to be shed by what their queries ask for."""

    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: by stream, then by query: of each operator that concerns the stream, the columns by which it could be shed for
    #: it; of a stream that is shed by a key, those only that are served
    asked: dict[str, dict[str, tuple[tuple[str, ...], ...]]] = field(default_factory=dict)
    refused: str | None = None  #: why keys that serve them are not taken, if a recipe fails with these
    untold: tuple[str, ...] = ()  #: queries whose needs the plan does not tell

    def words(self, stream: str) -> str:
        """Return what to say of a stream: "shed by user, for pairs"."""
        key, asked = self.keys[stream], self.asked.get(stream, {})
        if self.refused is not None:
            return f"shed {_by(key)} as before: {self.refused}"
        if key:
            return f"shed {_by(key)}, for {', '.join(asked)}" if asked else f"shed {_by(key)}"
        if not asked and self.untold:
            of = ", ".join(self.untold)
            return f"shed row by row: what {of} asks for can't be told: name the columns with --shed-by"
        if not asked:
            return "shed row by row: no query asks for a key"
        each = (f"{query} asks for {_alternatives(columns)}" for query, columns in asked.items())
        return f"shed row by row, as no column serves all: {', '.join(each)}"


def chosen(application: Application) -> tuple[str, ...]:
    """Return the streams whose topics are to be shed by what their queries ask for."""
    return tuple(s.name for s in application.streams if s.topic is not None and s.topic.shed_by == AUTO)


def with_keys(application: Application, keys: Keys) -> Application:
    """Return the application in which these are the keys of streams that are to be shed by what their queries ask for;
    others of these are shed row by row."""
    among = set(chosen(application))
    if not among:
        return application
    return Application(
        tuple(
            replace(s, inputs=replace(s.topic, shed_by=keys.get(s.name, ())))
            if s.name in among and s.topic is not None
            else s
            for s in application.streams
        )
    )


def asking(application: Application) -> dict[str, Application]:
    """Return the queries that may be shed and read such streams, each with all that is upstream of it."""
    among, found = set(chosen(application)), {}
    for name in application.queries:
        needed = graph.ancestors(application.upstreams, [name])
        if needed & among and application[name].effective_min_accuracy < 1.0:
            found[name] = Application(tuple(application[each] for each in application.live if each in needed))
    return found


def renamed(asks: Sequence[Ask], streams: Mapping[str, str]) -> tuple[Ask, ...]:
    """Return the asks with the names of streams in place of the topics that these read."""
    return tuple(tuple(tuple(Place(streams[p.of], p.column) for p in places) for places in ask) for ask in asks)


def decided(asks: Mapping[str, Sequence[Ask] | None], present: Keys, stated: Keys) -> Decision:
    """Return the keys of the streams in `present`.

    One that no operator concerns stays as it is, and so does one whose present key serves all: with another key, what
    reads the stream starts without its state. An operator that can't be by key, whatever these streams are shed by,
    asks for nothing.

    Args:
        asks: by query; None where it can't be told.
        present: by what the streams are shed now.
        stated: the keys of the other streams of topics.

    """
    live = [(query, _paired(ask)) for query, each in asks.items() for ask in each or ()]
    live = [(query, ask) for query, ask in live if present.keys() & _streams(ask)]
    as_now, anew = (_solved(live, present, keep, stated) for keep in (present, dict.fromkeys(present, ())))
    untold = tuple(query for query, each in asks.items() if each is None)
    return replace((as_now if as_now.met >= anew.met else anew).decision, untold=untold)


class _Solution(NamedTuple):
    decision: Decision
    met: int  #: of how many operators


def _solved(live: list[tuple[str, Ask]], present: Keys, keep: Keys, stated: Keys) -> _Solution:
    """Return the keys by which as many operators are as all agree on; of these, those in `keep` where they serve
    all."""
    asked: dict[str, dict[str, tuple[tuple[str, ...], ...]]] = {}
    torn: set[str] = set()
    while True:
        live = [(query, fits) for query, ask in live if (fits := _reachable(ask, present, stated))]
        common = {stream: key for stream in present if (key := _common(stream, live, keep)) is not None}
        if [ask for _, ask in live] == [_within(ask, common) for _, ask in live]:
            common = _uncrossed(common, _crossed(live, stated))
        for stream in common:
            asked.setdefault(stream, _by_query(stream, live))
        torn |= {stream for stream, key in common.items() if not key}
        left = [(query, _within(ask, common)) for query, ask in live]
        if left == live:
            break
        live = [(query, ask) for query, ask in left if ask]
    keys = {stream: () if stream in torn else common.get(stream, key) for stream, key in present.items()}
    keys = _in_order(keys, present, live, stated)
    served = {stream: _by_query(stream, live) if key else asked.get(stream, {}) for stream, key in keys.items()}
    return _Solution(Decision(keys, served), len(live))


def _uncrossed(common: Keys, crossed: Collection[Place]) -> dict[str, tuple[str, ...]]:
    """Return the keys without the columns that are crossed."""
    return {of: tuple(column for column in key if Place(of, column) not in crossed) for of, key in common.items()}


def _paired(ask: Ask) -> Ask:
    """Drop pairs of a stream with itself, and second partners of a column: keys of two sides match one to one."""
    found: list[tuple[Place, ...]] = []
    for places in ask:
        apart = len({place.of for place in places}) == len(places)
        if apart and not any(place in known for place in places for known in found):
            found.append(places)
    return tuple(found)


def _reachable(ask: Ask, present: Keys, stated: Keys) -> Ask:
    """Return what of it these streams can be shed by: () where another one is not, or not by all of its own key."""
    for stream in _streams(ask) - present.keys():
        key, by_column = stated.get(stream, ()), {_column(places, stream): places for places in ask}
        if not key or not set(key) <= by_column.keys():
            return ()
        ask = tuple(by_column[column] for column in key)
    return ask


def _common(stream: str, live: Collection[tuple[str, Ask]], keep: Keys) -> tuple[str, ...] | None:
    """Return the columns of a stream that all operators have that concern it; None if none does."""
    found = [columns for _, ask in live if (columns := _columns(ask, stream))]
    if not found:
        return None
    common = tuple(column for column in found[0] if all(column in each for each in found))
    return keep[stream] if keep[stream] and set(keep[stream]) <= set(common) else common


def _equated(live: Collection[tuple[str, Ask]]) -> list[set[Place]]:
    """Return the columns that these operators equate, directly or by way of others."""
    found: list[set[Place]] = []
    for places in (places for _, ask in live for places in ask):
        same = [each for each in found if not each.isdisjoint(places)]
        found = [each for each in found if each not in same] + [set(places).union(*same)]
    return found


def _crossed(live: Collection[tuple[str, Ask]], stated: Keys) -> set[Place]:
    """Return the columns that can't have one position in all keys: equated with another column of their own stream, or
    with columns at several positions of stated keys."""
    crossed: set[Place] = set()
    for places in _equated(live):
        positions = {stated[place.of].index(place.column) for place in places if place.of in stated}
        if len(positions) > 1 or len({place.of for place in places}) < len(places):
            crossed |= places
    return crossed


def _in_order(keys: Keys, present: Keys, live: Collection[tuple[str, Ask]], stated: Keys) -> dict[str, tuple[str, ...]]:
    """Return the same keys, with columns that are equated at the same position, since a key's hash is of its values in
    their order: that of stated keys, then of present ones that stay, then of the others."""
    stay = {of: present[of] for of, key in keys.items() if set(key) == set(present[of])}
    equated, rank = _equated(live), dict[Place, int]()
    for of, key in (*stated.items(), *stay.items(), *keys.items()):
        for place in (Place(of, column) for column in key):
            same = next((places for places in equated if place in places), {place})
            rank |= dict.fromkeys(same - rank.keys(), len(rank))
    places = {of: sorted((Place(of, column) for column in key), key=rank.__getitem__) for of, key in keys.items()}
    return {of: tuple(place.column for place in each) for of, each in places.items()}


def _streams(ask: Ask) -> set[str]:
    return {place.of for places in ask for place in places}


def _within(ask: Ask, keys: Keys) -> Ask:
    """Return what is left of it where these are the keys."""
    return tuple(p for p in ask if all(place.of not in keys or place.column in keys[place.of] for place in p))


def _by_query(stream: str, live: Collection[tuple[str, Ask]]) -> dict[str, tuple[tuple[str, ...], ...]]:
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    for query, ask in live:
        if columns := _columns(ask, stream):
            found[query] = (*found.get(query, ()), columns)
    return found


def _columns(ask: Ask, stream: str) -> tuple[str, ...]:
    """Return the columns of this stream, each once."""
    found = (_column(places, stream) for places in ask)
    return tuple(dict.fromkeys(column for column in found if column is not None))


def _column(places: Sequence[Place], stream: str) -> str | None:
    return next((place.column for place in places if place.of == stream), None)


def _by(key: Sequence[str]) -> str:
    return f"by {', '.join(key)}" if key else "row by row"


def _alternatives(columns: Sequence[tuple[str, ...]]) -> str:
    return " and ".join(dict.fromkeys(" or ".join(each) for each in columns))
