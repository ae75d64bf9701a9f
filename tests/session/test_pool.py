"""A budget's states, told step by step on a clock by hand; and what holds whatever happens."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from qod_magics.core.snapshot import NodeState, Spare
from qod_magics.errors import TaskManagerError
from qod_magics.session.pool import (
    CONNECT,
    FIRST_WAIT_S,
    LOCAL,
    LONGEST_WAIT_S,
    Await,
    Budget,
    Close,
    Instruction,
    Join,
    Pool,
    StandBy,
    Start,
)
from tests.raising import breaks
from tests.texts import tells

START_S = 12.0


def pool(most: int, local: int = 1, standby: bool = True, spare: tuple[str, ...] = ()) -> Pool:
    numbers = count(local + 1)
    budget = Budget(most, local, spare_connect=spare, standby=standby, cores=1)
    return Pool(budget, lambda: f"tm{next(numbers)}", {LOCAL: 0.9}, {LOCAL: START_S})


def test_one_stands_by_while_the_budget_allows_it() -> None:
    made, up = pool(3), {"tm1"}
    (start,) = made.tend(up, 0.0)
    assert isinstance(start, Start)
    assert made.tend(up, 1.0) == (), "one at a time"
    assert isinstance(made.warm("tm2"), StandBy)
    assert made.states() == {"tm2": NodeState.STANDBY}
    assert made.tend(up, 20.0) == ()
    (join,) = made.add(LOCAL, "tm1 is full", up, 30.0)
    assert isinstance(join, Join)
    assert (join.node.id, join.node.why) == ("tm2", "tm1 is full")
    assert made.tend(up, 30.0) == (), "while another starts, it waits"
    made.joined("tm2")
    (start,) = made.tend({"tm1", "tm2"}, 31.0)
    assert start.node.id == "tm3"
    made.warm("tm3")
    made.add(LOCAL, "", {"tm1", "tm2"}, 60.0)
    made.joined("tm3")
    assert made.tend({"tm1", "tm2", "tm3"}, 61.0) == (), "the budget is used up"


def test_none_stands_by_if_it_is_not_wanted() -> None:
    made = pool(3, standby=False)
    assert made.tend({"tm1"}, 0.0) == ()
    (start,) = made.add(LOCAL, "why", {"tm1"}, 0.0)
    assert isinstance(start, Start)
    assert isinstance(made.warm("tm2"), Join)


def test_what_can_be_added_is_told_with_how_long_it_takes() -> None:
    made, up = pool(3, spare=("sc://a",)), {"tm1"}
    assert made.spares(up, 0.0) == (Spare(LOCAL, 2, 0.9, start_s=START_S), Spare(CONNECT, 1, 1.0, start_s=5.0))
    made.tend(up, 0.0)
    assert made.spares(up, 4.0)[0] == Spare(LOCAL, 2, 0.9, start_s=START_S - 4.0)
    assert made.spares(up, 40.0)[0].start_s == 0.0, "late"
    made.warm("tm2")
    assert made.spares(up, 13.0)[0].start_s == 0.0
    made.add(LOCAL, "", up, 14.0)
    assert made.spares(up, 14.0)[0] == Spare(LOCAL, 1, 0.9, start_s=START_S)
    made.joined("tm2")
    assert made.spares({"tm1", "tm2", "tm4"}, 15.0) == ()


def test_one_that_is_being_prepared_joins_once_it_is_warm() -> None:
    made, up = pool(2), {"tm1"}
    made.tend(up, 0.0)
    (wait,) = made.add(LOCAL, "tm1 is full", up, 5.0)
    assert isinstance(wait, Await)
    assert made.states() == {"tm2": NodeState.STARTING}
    due = made.warm("tm2")
    assert isinstance(due, Join)
    assert (due.node.begun, due.node.asked) == (0.0, 5.0)


def test_what_is_over_the_budget_is_refused() -> None:
    made = pool(2)
    with pytest.raises(TaskManagerError, check=breaks("budget", value=2)) as caught:
        made.add(LOCAL, "", {"tm1", "tm9"}, 0.0)
    assert "\n" not in str(caught.value)
    made.add(LOCAL, "", {"tm1"}, 0.0)
    with pytest.raises(TaskManagerError, check=breaks("budget", value=2)):
        made.add(LOCAL, "", {"tm1"}, 1.0)
    with pytest.raises(TaskManagerError, check=breaks("budget", value=2)):
        made.reserve(LOCAL, {"tm1"}, 1.0)


@pytest.mark.parametrize("kind", ["large", CONNECT])
def test_a_kind_that_is_not_there_is_refused(kind: str) -> None:
    with pytest.raises(TaskManagerError, check=breaks("exists", name=kind)):
        pool(2).add(kind, "", {"tm1"}, 0.0)


def test_a_spare_server_takes_the_place_of_the_standby() -> None:
    made, up = pool(2, spare=("sc://a",)), {"tm1"}
    made.tend(up, 0.0)
    made.warm("tm2")
    close, start = made.add(CONNECT, "", up, 5.0)
    assert isinstance(close, Close)
    assert close.node.id == "tm2"
    assert isinstance(start, Start)
    assert start.node.url == "sc://a"
    assert made.states() == {"tm3": NodeState.STARTING}


def test_a_server_that_was_released_can_be_added_again() -> None:
    made, up = pool(3, spare=("sc://a",)), {"tm1"}
    made.add(CONNECT, "", up, 0.0)
    assert [spare.kind for spare in made.spares(up, 0.0)] == [LOCAL]
    made.joined("tm2")
    up |= {"tm2"}
    with pytest.raises(TaskManagerError, check=breaks("spare server")):
        made.add(CONNECT, "", up, 0.0)
    assert made.release("tm2", "idle", up, 1.0)
    assert not made.drained("tm2", False, 2.0)
    made.closed("tm2", "sc://a")
    assert [spare.kind for spare in made.spares({"tm1"}, 3.0)] == [LOCAL, CONNECT]


def test_a_spare_server_that_is_added_by_hand_is_not_added_twice() -> None:
    made, up = pool(4, standby=False, spare=("sc://a",)), {"tm1"}
    node, _ = made.reserve(CONNECT, up, 0.0, "sc://a")
    assert [spare.kind for spare in made.spares(up, 0.0)] == [LOCAL]
    made.cancelled(node.id)
    assert [spare.kind for spare in made.spares(up, 1.0)] == [LOCAL, CONNECT], "it did not come up"
    node, _ = made.reserve(CONNECT, up, 2.0, "sc://b")
    assert node.url is None, "no spare one"
    assert [spare.kind for spare in made.spares(up, 2.0)] == [LOCAL, CONNECT]


def test_the_one_that_is_released_stands_by_if_none_does() -> None:
    made, up = pool(2), {"tm1", "tm2"}
    assert made.release("tm2", "idle", up, 0.0)
    assert not made.release("tm2", "idle", up, 1.0), "under way"
    assert made.spares(up, 1.0) == ()
    assert made.tend(up, 1.0) == ()
    assert made.drained("tm2", True, 2.0)
    assert made.states() == {"tm2": NodeState.STANDBY}
    assert made.spares({"tm1"}, 2.0) == (Spare(LOCAL, 1, 0.9, start_s=0.0),)


@pytest.mark.parametrize("made", [pool(4), pool(4, standby=False)])
def test_it_is_closed_if_another_stands_by_or_none_may(made: Pool) -> None:
    up = {"tm1", "tm9"}
    for start in made.tend(up, 0.0):
        made.warm(start.node.id)
    made.release("tm9", "idle", up, 1.0)
    assert not made.drained("tm9", True, 2.0)
    made.closed("tm9")
    assert "tm9" not in made.nodes


def test_none_stands_by_where_no_local_one_can_be_added() -> None:
    made = Pool(Budget(3, 0, ("sc://a",), ("sc://b",)), lambda: "tm2", {}, {})
    node, _ = made.reserve(LOCAL, {"tm1"}, 0.0)
    made.joined(node.id)
    made.release("tm2", "removed by hand", {"tm1", "tm2"}, 1.0)
    assert not made.drained("tm2", True, 2.0), "nothing could take it from there"


def test_the_last_one_is_not_released() -> None:
    made, up = pool(3), {"tm1", "tm2"}
    made.release("tm1", "", up, 0.0)
    with pytest.raises(TaskManagerError, check=breaks("not the last", name="tm2")):
        made.release("tm2", "", up, 0.0)
    with pytest.raises(TaskManagerError, check=breaks("exists", name="tm7")):
        made.release("tm7", "", up, 0.0)


def test_a_standby_is_not_released() -> None:
    made = pool(2)
    made.tend({"tm1"}, 0.0)
    made.warm("tm2")
    with pytest.raises(TaskManagerError, check=breaks("hosts instances", name="tm2")):
        made.release("tm2", "", {"tm1"}, 1.0)


def test_failed_starts_back_off() -> None:
    made, up, now, waited = pool(2), {"tm1"}, 0.0, []
    for _ in range(8):
        (start,) = made.tend(up, now)
        wait_s = made.failed(start.node.id, "no Java", now)
        waited.append(wait_s)
        assert made.tend(up, now + 0.99 * wait_s) == ()
        assert made.spares(up, now + 0.99 * wait_s) == ()
        with pytest.raises(TaskManagerError, check=breaks("backed off", name="local")):
            made.add(LOCAL, "", up, now)
        assert "failed" in made.text(up, now)
        now += wait_s
    assert waited == [FIRST_WAIT_S * 2**i for i in range(5)] + [LONGEST_WAIT_S] * 3
    (start,) = made.tend(up, now)
    made.warm(start.node.id)
    made.add(LOCAL, "", up, now)
    made.joined(start.node.id)
    made.failed(made.reserve(LOCAL, up, now)[0].id, "no Java", now)
    assert made.spares(up, now + FIRST_WAIT_S) != (), "from the beginning again"


def test_without_any_one_is_added_by_itself() -> None:
    made = pool(2)
    made.tend({"tm1"}, 0.0)
    made.warm("tm2")
    (join,) = made.tend(set(), 10.0)
    assert isinstance(join, Join)
    assert join.node.why
    (start,) = pool(2, standby=False).tend(set(), 0.0)
    assert start.node.state is NodeState.STARTING


def test_its_line_tells_the_budget_and_who_comes_and_goes() -> None:
    made, up = pool(3), {"tm1", "tm9"}
    assert tells(made.text(up, 0.0), 2, 3)
    made.tend(up, 0.0)
    assert tells(made.text(up, 3.0), 2, 3, "tm2", "3 s")
    made.add(LOCAL, "tm1 is full", up, 3.0)
    assert made.text(up, 5.0).endswith("; tm2 starting for 2 s (tm1 is full)")
    made.joined("tm2")
    made.release("tm9", "idle", up, 5.0)
    assert made.text(up, 6.0).endswith("; tm9 leaving for 1 s (idle)")


class Lives(RuleBasedStateMachine):
    """Whatever is asked for and happens, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.up = {"tm1"}
        self.starting: set[str] = set()
        self.closing: set[str] = set()

    @rule(most=st.integers(1, 4), standby=st.booleans())
    @precondition(lambda self: not hasattr(self, "pool"))
    def made(self, most: int, standby: bool) -> None:
        self.pool = pool(most, standby=standby, spare=("sc://a", "sc://b"))

    def follow(self, due: tuple[Instruction, ...]) -> None:
        for each in due:
            if isinstance(each, Start):
                self.starting.add(each.node.id)
            elif isinstance(each, Join):
                self.up.add(each.node.id)
                self.pool.joined(each.node.id)
            elif isinstance(each, Close):
                self.starting.discard(each.node.id)

    @rule(seconds=st.floats(0.0, 400.0))
    def passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: hasattr(self, "pool"))
    @rule(kind=st.sampled_from([LOCAL, CONNECT]))
    def add(self, kind: str) -> None:
        offered = {spare.kind for spare in self.pool.spares(self.up, self.now)}
        try:
            self.follow(self.pool.add(kind, "", self.up, self.now))
        except TaskManagerError:
            assert kind not in offered, "what is offered is not refused"

    @precondition(lambda self: hasattr(self, "pool"))
    @rule()
    def tend(self) -> None:
        self.follow(self.pool.tend(self.up, self.now))

    @precondition(lambda self: hasattr(self, "pool") and self.starting)
    @rule(good=st.booleans(), data=st.data())
    def ends_its_start(self, good: bool, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.starting)))
        self.starting.discard(id)
        if good:
            self.follow((self.pool.warm(id),))
        else:
            assert FIRST_WAIT_S <= self.pool.failed(id, "why", self.now) <= LONGEST_WAIT_S

    @precondition(lambda self: hasattr(self, "pool") and self.up)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.up)))
        try:
            if self.pool.release(id, "", self.up, self.now):
                self.closing.add(id)
        except TaskManagerError:
            assert len(self.up - self.closing) == 1

    @precondition(lambda self: hasattr(self, "pool") and self.closing)
    @rule(reusable=st.booleans(), data=st.data())
    def drained(self, reusable: bool, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.closing)))
        self.closing.discard(id)
        self.up.discard(id)
        if not self.pool.drained(id, reusable, self.now):
            self.pool.closed(id)

    @precondition(lambda self: hasattr(self, "pool") and self.up - self.closing)
    @rule(data=st.data())
    def lost(self, data: st.DataObject) -> None:
        self.up.discard(data.draw(st.sampled_from(sorted(self.up - self.closing))))

    @invariant()
    def the_budget_holds(self) -> None:
        if not hasattr(self, "pool"):
            return
        assert len({*self.up, *self.pool.nodes}) <= self.pool.most
        states = list(self.pool.states().values())
        assert sum(state in (NodeState.STANDBY, NodeState.PREPARING) for state in states) <= 1
        assert {id for id, s in self.pool.states().items() if s is NodeState.LEAVING} == self.closing
        assert all(spare.count > 0 and spare.start_s >= 0 for spare in self.pool.spares(self.up, self.now))
        if not self.pool.budget.standby:
            assert NodeState.STANDBY not in states


TestWhateverHappens = Lives.TestCase
