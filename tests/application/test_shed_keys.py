"""By what streams are shed for their queries: the keys that serve all of them, and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.application.application import Application
from qod_magics.application.shed_keys import Ask, Decision, Place, asking, chosen, decided, renamed, with_keys
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import AUTO, TopicInput
from qod_magics.errors import ApplicationError
from tests.application.frames import application, stream
from tests.raising import breaks
from tests.texts import tells

Key = tuple[str, ...]


def columns(of: str, *names: str) -> Ask:
    """Of one stream, as a DISTINCT needs them."""
    return tuple((Place(of, name),) for name in names)


def pairs(*equal: str) -> Ask:
    """Of two streams, as a join does: "clicks.user = orders.buyer"."""
    sides = ([Place(*side.split(".")) for side in each.split(" = ")] for each in equal)
    return tuple(map(tuple, sides))


def keys(
    asks: Mapping[str, Sequence[Ask]], present: Mapping[str, Key], stated: Mapping[str, Key] | None = None
) -> dict:
    return decided(asks, present, stated or {}).keys


NONE = {"clicks": (), "orders": ()}
JOIN = pairs("clicks.user = orders.buyer")


@pytest.mark.parametrize(
    ("asks", "clicks", "orders"),
    [
        ({}, (), ()),
        ({"a": [columns("clicks", "user")]}, ("user",), ()),
        ({"a": [columns("clicks", "user", "page")]}, ("user", "page"), ()),
        ({"a": [columns("clicks", "user", "page"), columns("clicks", "page")]}, ("page",), ()),
        ({"a": [columns("clicks", "user")], "b": [columns("clicks", "page")]}, (), ()),
        ({"a": [columns("clicks", "user")], "b": [columns("orders", "item")]}, ("user",), ("item",)),
        ({"a": [JOIN]}, ("user",), ("buyer",)),
        ({"a": [JOIN], "b": [columns("clicks", "page")]}, (), ()),
        ({"a": [JOIN], "b": [columns("clicks", "page")], "c": [columns("orders", "item")]}, (), ()),
        ({"a": [JOIN], "b": [columns("clicks", "user", "page")]}, ("user",), ("buyer",)),
        (
            {"a": [pairs("clicks.user = orders.buyer", "clicks.page = orders.item")], "b": [columns("orders", "item")]},
            ("page",),
            ("item",),
        ),
        ({"a": [pairs("clicks.user = orders.buyer", "clicks.user = orders.item")]}, ("user",), ("buyer",)),
        ({"a": [pairs("clicks.user = clicks.page")]}, (), ()),
    ],
)
def test_a_stream_is_shed_by_the_columns_that_all_operators_have(
    asks: Mapping[str, Sequence[Ask]], clicks: Key, orders: Key
) -> None:
    assert keys(asks, NONE) == {"clicks": clicks, "orders": orders}


@pytest.mark.parametrize(
    ("equal", "stated", "clicks"),
    [
        (["clicks.user = orders.buyer"], ("buyer",), ("user",)),
        (["clicks.user = orders.buyer", "clicks.page = orders.item"], ("item",), ("page",)),
        (["clicks.user = orders.buyer", "clicks.page = orders.item"], ("item", "buyer"), ("page", "user")),
        (["clicks.user = orders.buyer"], ("item", "buyer"), ()),
        (["clicks.user = orders.buyer"], ("item",), ()),
        (["clicks.user = orders.buyer"], (), ()),
    ],
)
def test_a_join_with_a_stream_of_another_key_asks_for_what_fits_it(equal: list[str], stated: Key, clicks: Key) -> None:
    assert keys({"a": [pairs(*equal)]}, {"clicks": ()}, {"orders": stated}) == {"clicks": clicks}


def test_a_key_stays_while_it_serves() -> None:
    by_user = {"clicks": ("user",), "orders": ()}
    assert keys({}, by_user) == by_user, "its query is gone"
    assert keys({"a": [columns("clicks", "page", "user")]}, by_user) == by_user
    assert keys({"a": [columns("clicks", "page")]}, by_user)["clicks"] == ("page",)
    both = pairs("clicks.page = orders.item", "clicks.user = orders.buyer")
    assert keys({"a": [both]}, by_user) == {"clicks": ("user",), "orders": ("buyer",)}
    assert keys({"a": [both]}, {"clicks": ("user",), "orders": ("item",)}) == {
        "clicks": ("page", "user"),
        "orders": ("item", "buyer"),
    }, "with the present ones, no pair would be whole"


SWAPPED = pairs("clicks.user = orders.buyer", "clicks.zone = orders.zone")


@pytest.mark.parametrize(
    ("asks", "present", "found"),
    [
        (
            {"d": [columns("clicks", "zone", "user")], "j": [SWAPPED]},
            NONE,
            {"clicks": ("zone", "user"), "orders": ("zone", "buyer")},
        ),
        (
            {"j": [SWAPPED]},
            {"clicks": (), "orders": ("zone", "buyer")},
            {"clicks": ("zone", "user"), "orders": ("zone", "buyer")},
        ),
        (
            {"j": [SWAPPED], "k": [pairs("orders.zone = views.at", "orders.buyer = views.who")]},
            {**NONE, "views": ("who", "at")},
            {"clicks": ("user", "zone"), "orders": ("buyer", "zone"), "views": ("who", "at")},
        ),
        (
            {"j": [SWAPPED], "k": [pairs("clicks.user = orders.zone", "clicks.zone = orders.buyer")]},
            NONE,
            NONE,
        ),
        (
            {
                "j": [pairs("clicks.a = orders.a", "clicks.b = orders.b", "clicks.c = orders.c")],
                "k": [pairs("clicks.a = orders.a", "clicks.b = orders.c", "clicks.c = orders.b")],
            },
            NONE,
            {"clicks": ("a",), "orders": ("a",)},
        ),
    ],
    ids=["first query", "present key", "three streams", "never in one order", "all but two"],
)
def test_columns_that_a_join_equates_have_one_position_in_both_keys(
    asks: Mapping[str, Sequence[Ask]], present: Mapping[str, Key], found: Mapping[str, Key]
) -> None:
    """Rows are shed by the hash of the values in the key's order."""
    assert keys(asks, present) == found


def test_columns_have_the_positions_of_stated_keys() -> None:
    stated = {"orders": ("zone", "buyer"), "views": ("at", "who")}
    views = pairs("clicks.user = views.who", "clicks.zone = views.at")
    asks = {"d": [columns("clicks", "user", "zone")], "j": [SWAPPED], "k": [views]}
    assert keys(asks, {"clicks": ()}, stated) == {"clicks": ("zone", "user")}
    assert keys(asks, {"clicks": ("user", "zone")}, stated) == {"clicks": ("zone", "user")}
    assert keys(asks, {"clicks": ()}, {**stated, "views": ("who", "at")}) == {"clicks": ()}
    between = pairs("orders.zone = views.who", "orders.buyer = views.at")  # never by key, whatever clicks are shed by
    assert keys({**asks, "l": [between]}, {"clicks": ()}, stated) == {"clicks": ("zone", "user")}


PLACES = [st.sampled_from([(Place(of, c),) for c in "xyz"]) for of in ("a", "b")]
JOINED = st.tuples(st.sampled_from("xyz"), st.sampled_from("xyz")).map(lambda c: (Place("a", c[0]), Place("b", c[1])))
ASKS = st.one_of(*(st.lists(each, min_size=1, max_size=3, unique=True).map(tuple) for each in (*PLACES, JOINED)))
KEYS = st.lists(st.sampled_from("xyz"), max_size=2, unique=True).map(tuple)


def streams(ask: Ask) -> set[str]:
    return {place.of for places in ask for place in places}


def is_by_key(ask: Ask, found: Mapping[str, Key]) -> bool:
    """Whether rows that are equal in these columns are in the same key, on both sides if there are two."""
    (first, *others) = streams(ask)
    if not others:
        return bool(found[first]) and set(found[first]) <= {places[0].column for places in ask}
    matched = [(Place("a", x), Place("b", y)) for x, y in zip(found["a"], found["b"], strict=False)]
    return bool(matched) and len(found["a"]) == len(found["b"]) and set(matched) <= set(ask)


@given(st.dictionaries(st.sampled_from("pqr"), st.lists(ASKS, max_size=2), max_size=3), KEYS, KEYS, st.booleans())
def test_what_a_key_is_said_to_serve_is_by_that_key_and_it_stays(
    asks: dict[str, list[Ask]], a: Key, b: Key, stated: bool
) -> None:
    present, others = ({"a": a}, {"b": b}) if stated else ({"a": a, "b": b}, {})
    decision = decided(asks, present, others)
    assert decided(asks, decision.keys, others).keys == decision.keys
    found = {**others, **decision.keys}
    for of, key in decision.keys.items():
        assert len(set(key)) == len(key)
        for query, each in decision.asked.get(of, {}).items() if key else ():
            assert sum(is_by_key(ask, found) for ask in asks[query] if of in streams(ask)) >= len(each)
        if key and key != present[of]:
            served = decision.asked[of]
            assert served, "no other key without need"
            for query in served:
                assert any(is_by_key(ask, found) for ask in asks[query])
        if not key:
            concerned = [ask for each in asks.values() for ask in each if of in streams(ask)]
            assert len(concerned) != 1 or len(streams(concerned[0])) > 1


def topic(name: str, shed_by: Key = AUTO) -> StreamDeclaration:
    return StreamDeclaration(name, stream(name, topic=name).recipe, TopicInput(name, "user LONG", shed_by=shed_by))


def test_streams_are_shed_row_by_row_until_a_key_is_chosen() -> None:
    app = application(topic("clicks"), topic("orders", ("buyer",)), stream("q", "clicks", min_accuracy=0.5))
    assert chosen(app) == ("clicks",)
    for given_keys, key in (({}, ()), ({"clicks": ("user",), "orders": ("item",)}, ("user",))):
        keyed = with_keys(app, given_keys)
        assert [s.topic.shed_by for s in keyed.streams if s.topic] == [key, ("buyer",)]
        assert keyed.names == app.names
    assert with_keys(Application(), {}) == Application()


def test_queries_that_lose_rows_are_asked_with_all_that_is_upstream() -> None:
    app = application(
        *(topic("clicks"), topic("orders", ()), stream("seen", "clicks")),
        stream("both", "seen", "orders", min_accuracy=0.5),
        stream("whole", "seen", priority=1),
        stream("other", "orders", min_accuracy=0.5),
    )
    assert {query: needed.names[-1] for query, needed in asking(app).items()} == {"both": "both"}
    assert set(asking(app)["both"].names) == {"clicks", "seen", "orders", "both"}


def test_topics_have_the_names_of_the_streams_that_read_them() -> None:
    asked = (pairs("t.user = u.buyer"), columns("t", "user"))
    assert renamed(asked, {"t": "clicks", "u": "orders"}) == (JOIN, columns("clicks", "user"))


@pytest.mark.parametrize(
    ("asks", "present", "says"),
    [
        ({}, (), ("row by row",)),
        ({"a": [columns("clicks", "user")]}, (), ("user", "a")),
        ({"a": [columns("clicks", "user", "page")], "b": [JOIN]}, (), ("user", "a, b")),
        ({}, ("user", "page"), ("user, page",)),
        (
            {"a": [columns("clicks", "user", "page")], "b": [columns("clicks", "at")]},
            ("user",),
            ("row by row", "a", "user or page", "b", "at"),
        ),
    ],
)
def test_what_is_said_of_a_stream(asks: Mapping[str, Sequence[Ask]], present: Key, says: Sequence[str]) -> None:
    words = decided(asks, {"clicks": present, "orders": ()}, {}).words("clicks")
    assert tells(words, *says)
    assert "\n" not in words


def test_a_query_that_can_not_be_told_is_not_taken_for_one_that_asks_for_nothing() -> None:
    decision = decided({"a": None, "b": [columns("orders", "item")]}, NONE, {})
    assert tells(decision.words("clicks"), "row by row", "a", "--shed-by")
    assert tells(decision.words("orders"), "item", "b")


def test_a_key_with_which_a_recipe_fails_is_not_taken() -> None:
    decision = Decision({"clicks": ()}, {}, "stream 'a': no interval")
    assert tells(decision.words("clicks"), "row by row", "stream 'a': no interval")


def test_raw_records_have_no_columns_to_choose_from() -> None:
    with pytest.raises(ApplicationError, check=breaks("columns")):
        TopicInput("clicks", shed_by=AUTO)
