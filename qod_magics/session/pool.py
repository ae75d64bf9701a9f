"""Task managers that start, stand by and leave, within a budget: states and what to do next. Pure.

It starts nothing itself: each method gets the ids of the task managers that are up and the time, and returns
instructions, whose outcomes are reported by `warm`, `failed`, `joined`, `drained` and `closed`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from qod_magics.core.snapshot import NodeState, Spare
from qod_magics.errors import TaskManagerError, UsageProblem, nearest
from qod_magics.machine.cores import core_sets, usable_cores
from qod_magics.spark.servers.remote import check_url

# --- The budget -------------------------------------------------------------------------------------------------------

#: Kinds of task managers, as in `AddNode.kind`.
LOCAL, CONNECT = "local", "connect"


@dataclass(frozen=True, slots=True)
class Budget:
    """Task managers that a session starts with, and those that may join later.

    Raises UsageProblem: a number is out of range, or nothing could join.
    """

    most: int | None  #: task managers at the same time, the standby among them; None: plans add and release none
    local: int  #: local ones to start with
    connect: Sequence[str] = field(default=(), repr=False)  #: servers to start with; a URL may hold a token
    spare_connect: Sequence[str] = field(default=(), repr=False)  #: servers that may join later
    standby: bool = True  #: whether one more local one is started ahead
    cores: int | None = None  #: of each local one; None: the machine's, divided among all that may be up

    def __post_init__(self) -> None:
        for url in (*self.connect, *self.spare_connect):
            check_url(url)
        first = self.local + len(self.connect)
        if self.local < 0 or first == 0:
            raise UsageProblem(
                f"{self.local} task managers can't run anything: take 1 or more, or --connect URL",
                value=self.local,
                rule="one to start with",
            )
        if self.local == 0 and self.cores is not None:
            raise UsageProblem(
                f"--cores {self.cores} is of local task managers, and none is started: leave it out",
                value=self.cores,
                rule="a local one",
            )
        if self.most is None:
            if self.spare_connect or not self.standby:
                raise UsageProblem(
                    "--spare-connect and --no-standby are of a budget: add --max-task-managers N", rule="a budget"
                )
            return
        if self.most < first:
            raise UsageProblem(
                f"--max-task-managers {self.most} is less than the {first} to start with: take {first} or more",
                value=self.most,
                rule="room for the first",
            )
        if self.local == 0 and self.most > first and not self.spare_connect:
            raise UsageProblem(
                f"--max-task-managers {self.most} beside --connect alone: name servers that may join "
                "(--spare-connect URL), or start a local one (--task-managers 1)",
                value=self.most,
                rule="room to grow",
            )

    @property
    def most_local(self) -> int:
        """Return the number of local ones at the same time."""
        if self.local == 0:
            return 0
        return self.local if self.most is None else self.most - len(self.connect)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds that may be added."""
        remote = self.connect or self.spare_connect
        return (*([LOCAL] if self.local else []), *([CONNECT] if remote else []))

    @property
    def each(self) -> int:
        """Return the number of cores of each local one. Raises UsageProblem: the machine has fewer."""
        return len(next(iter(core_sets(self.most_local, self.cores)), None) or ())

    def core_sets(self) -> list[frozenset[int] | None]:
        """Return the cores of each local one to start with. Raises UsageProblem: the machine has fewer than one
        needs."""
        return core_sets(self.most_local, self.cores)[: self.local]

    @property
    def sharing(self) -> str:
        """Return what is done where the machine has too few cores for all local ones, in one line; "" elsewhere."""
        there, each = len(usable_cores()), self.each
        if self.most is None or self.most_local * each <= there:
            return ""
        return (
            f"up to {self.most_local} local task managers of {_cores(each)} each on this machine's {_cores(there)}: "
            f"from the {_ordinal(there // each + 1)} on they share cores"
        )


def _cores(count: int) -> str:
    return f"{count} core{'' if count == 1 else 's'}"


def _ordinal(number: int) -> str:
    ending = "th" if 11 <= number % 100 <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


#: Seconds until a task manager of a kind is up, until one was measured.
TYPICAL_START_S: Mapping[str, float] = {LOCAL: 15.0, CONNECT: 5.0}
#: Back-off after failed starts: doubles from the first of these to the second, seconds.
FIRST_WAIT_S, LONGEST_WAIT_S = 10.0, 300.0


@dataclass(frozen=True, slots=True)
class Node:
    """A task manager that is not simply up."""

    id: str
    kind: str
    state: NodeState
    begun: float  #: when its start or its release began, monotonic seconds
    asked: float  #: when it was asked to join
    why: str
    url: str | None = field(default=None, repr=False)  #: may hold a token


@dataclass(frozen=True, slots=True)
class Instruction:
    """What is to be done next with a node."""

    node: Node


class Start(Instruction):
    """Start or connect to it, and warm it up; then call `warm` or `failed`."""


class Await(Instruction):
    """It is to join as soon as it is warm: `warm` says so."""


class Join(Instruction):
    """It is warm: add it to the cluster; then call `joined` or `failed`."""


class StandBy(Instruction):
    """It is warm: keep it."""


class Close(Instruction):
    """End it: its place in the budget is taken by another."""


@dataclass(slots=True)
class Backoff:
    """Failed starts of one kind, one after the other."""

    failures: int = 0
    until: float = 0.0  #: no start before, monotonic seconds
    why: str = ""


class Pool:
    """The nodes of a budget.

    At any given time, those up and those here are at most `budget.most`, and at most one is ahead: standby or
    preparing.

    Args:
        budget: its `most` is set.
        name: gives the id of a new one.
        cores: of each of a kind, as plans would see it, where known.
        start_s: measured seconds until one of a kind was up, where known; may be updated.

    """

    def __init__(
        self, budget: Budget, name: Callable[[], str], cores: Mapping[str, float], start_s: Mapping[str, float]
    ) -> None:
        assert budget.most is not None
        self.budget = budget
        self.most = budget.most
        self.nodes: dict[str, Node] = {}
        self._name, self._cores, self._start_s = name, cores, start_s
        self._urls = list(budget.spare_connect)
        self._backoff = {kind: Backoff() for kind in (LOCAL, CONNECT)}

    def __repr__(self) -> str:
        return f"at most {self.most} task managers; {', '.join(f'{n.id} {n.state}' for n in self.nodes.values())}"

    # -- state ---------------------------------------------------------------------------------------------------------

    def states(self) -> dict[str, NodeState]:
        """State by id."""
        return {node.id: node.state for node in self.nodes.values()}

    def used(self, up: Collection[str]) -> int:
        """Task managers that host instances, will, or did until they are closed."""
        return len({*up, *(n.id for n in self._in(NodeState.STARTING, NodeState.LEAVING))})

    def spares(self, up: Collection[str], now: float) -> tuple[Spare, ...]:
        """Return what `add` would start or let join now, by kind."""
        room = self.most - self.used(up)
        counts = {LOCAL: room, CONNECT: min(room, len(self._urls))}
        return tuple(
            Spare(kind, counts[kind], self._cores.get(kind, 1.0), start_s=round(self._until_up_s(kind, now), 1))
            for kind in self._kinds
            if counts[kind] > 0 and now >= self._backoff[kind].until
        )

    def text(self, up: Collection[str], now: float) -> str:
        """Return the budget, and the nodes that join, stand by or leave: one line."""
        told = [_told(node, now) for node in self.nodes.values()]
        waits = [
            f"{kind}: the last start failed, the next is in {backoff.until - now:.0f} s ({backoff.why})"
            for kind, backoff in self._backoff.items()
            if now < backoff.until
        ]
        return "; ".join([f"{len(set(up))} of at most {self.most} task managers up", *told, *waits])

    def why_not(self, kind: str) -> str:
        """Return why the last start of this kind failed, as the end of a sentence; "" if it did not."""
        why = self._backoff[kind].why
        return f": {why}" if why else ""

    # -- requests ------------------------------------------------------------------------------------------------------

    def add(self, kind: str, why: str, up: Collection[str], now: float) -> tuple[Instruction, ...]:
        """Add a task manager of this kind: the standby at once, one that is warming up once it is warm, else another.

        Raises TaskManagerError: there is no such kind, the budget is used up, or the last start has just failed.
        """
        if kind not in self._kinds:
            raise TaskManagerError(
                f"No task manager of kind {kind!r} can be added.{nearest(kind, self._kinds)}", name=kind, rule="exists"
            )
        backoff = self._backoff[kind]
        if kind == CONNECT and not self._urls:
            raise TaskManagerError("No spare server is left: name more with --spare-connect URL.", rule="spare server")
        self._check_room(up)
        ahead = self._ahead() if kind == LOCAL else None
        if ahead is not None and ahead.state is NodeState.STANDBY:
            return (Join(self._promoted(ahead, why, now)),)
        if now < backoff.until:
            raise TaskManagerError(
                f"The last start of a {kind} one failed, and the next waits: {backoff.why}",
                name=kind,
                rule="backed off",
            )
        if ahead is not None:
            return (Await(self._promoted(ahead, why, now)),)
        node = self._enter(kind, NodeState.STARTING, why, now)
        return (*self._displaced(up), Start(node))

    def reserve(
        self, kind: str, up: Collection[str], now: float, url: str | None = None
    ) -> tuple[Node, tuple[Instruction, ...]]:
        """Return a place for one that the user starts with options of its own, or for the user's server at `url`, which
        is no longer spare then. Raises TaskManagerError: the budget is used up."""
        self._check_room(up)
        spare = url if url in self._urls else None
        if spare is not None:
            self._urls.remove(spare)
        name = self._name()
        node = self.nodes[name] = Node(name, kind, NodeState.STARTING, now, now, "added by hand", spare)
        return node, self._displaced(up)

    def release(self, id: str, why: str, up: Collection[str], now: float) -> bool:
        """Return whether its instances are to be moved now: False if that is under way.

        Raises TaskManagerError: there is no such task manager, or it is the last.
        """
        node = self.nodes.get(id)
        if node is not None and node.state is NodeState.LEAVING:
            return False
        if node is not None:
            raise TaskManagerError(f"{id} hosts no instance: it is {_IS[node.state]}.", name=id, rule="hosts instances")
        if id not in up:
            raise TaskManagerError(f"There is no task manager {id!r}.{nearest(id, up)}", name=id, rule="exists")
        if len(set(up) - {n.id for n in self._in(NodeState.LEAVING)}) == 1:
            raise TaskManagerError(
                f"{id} is the last task manager, and can't be released: add another one first.",
                name=id,
                rule="not the last",
            )
        self.nodes[id] = Node(id, "", NodeState.LEAVING, now, now, why)
        return True

    def tend(self, up: Collection[str], now: float) -> tuple[Instruction, ...]:
        """Return what is due by itself: one task manager if none is up, and a standby while the budget allows one."""
        if not up and not self._in(NodeState.STARTING):
            for spare in self.spares(up, now):
                return self.add(spare.kind, "no task manager is up", up, now)
        allowed = self.budget.standby and LOCAL in self._kinds and now >= self._backoff[LOCAL].until
        busy = self._in(NodeState.STARTING, NodeState.LEAVING)
        if not up or not allowed or busy or self._ahead() is not None or self._total(up) >= self.most:
            return ()
        return (Start(self._enter(LOCAL, NodeState.PREPARING, "ahead of need", now)),)

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def warm(self, id: str) -> Instruction:
        """Let a node that is up and warm join, or stand by."""
        node = self.nodes[id]
        if node.state is NodeState.STARTING:
            return Join(node)
        self.nodes[id] = node = replace(node, state=NodeState.STANDBY)
        return StandBy(node)

    def joined(self, id: str) -> None:
        """Forget a node that the runtime has: it is up."""
        node = self.nodes.pop(id)
        self._backoff[node.kind] = Backoff()

    def failed(self, id: str, why: str, now: float) -> float:
        """Forget a node that could not be started, or that ended while it stood by. Return the seconds until the next
        start of its kind."""
        node = self.nodes.pop(id)
        if node.url is not None:
            self._urls.append(node.url)
        backoff = self._backoff[node.kind]
        failures = 1 if now - node.begun > LONGEST_WAIT_S else backoff.failures + 1
        wait_s = min(FIRST_WAIT_S * 2.0 ** min(failures - 1, 16), LONGEST_WAIT_S)
        self._backoff[node.kind] = Backoff(failures, now + wait_s, why)
        return wait_s

    def cancelled(self, id: str) -> None:
        """Forget a task manager that the user started and that did not come up; it is not tried again."""
        node = self.nodes.pop(id)
        if node.url is not None:
            self._urls.append(node.url)

    def drained(self, id: str, reusable: bool, now: float) -> bool:
        """Its instances have moved. Return whether it stands by from now on, being `reusable`; else it is to be
        closed."""
        node = self.nodes[id]
        if not (reusable and self.budget.standby and LOCAL in self._kinds and self._ahead() is None):
            return False
        self.nodes[id] = replace(node, kind=LOCAL, state=NodeState.STANDBY, begun=now)
        return True

    def closed(self, id: str, url: str | None = None) -> None:
        """Forget a node that has ended, or that stays after all. Put its URL, if it has one, back on the spare list."""
        self.nodes.pop(id, None)
        if url is not None:
            self._urls.append(url)

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _kinds(self) -> tuple[str, ...]:
        return self.budget.kinds

    def _in(self, *states: NodeState) -> list[Node]:
        return [node for node in self.nodes.values() if node.state in states]

    def _ahead(self) -> Node | None:
        return next(iter(self._in(NodeState.STANDBY, NodeState.PREPARING)), None)

    def _total(self, up: Collection[str]) -> int:
        return len({*up, *self.nodes})

    def _until_up_s(self, kind: str, now: float) -> float:
        measured_s = self._start_s.get(kind, TYPICAL_START_S[kind])
        ahead = self._ahead() if kind == LOCAL else None
        if ahead is None:
            return measured_s
        return 0.0 if ahead.state is NodeState.STANDBY else max(measured_s - (now - ahead.begun), 0.0)

    def _check_room(self, up: Collection[str]) -> None:
        used = self.used(up)
        if used >= self.most:
            raise TaskManagerError(
                f"The budget is used up: {used} of at most {self.most} task managers (--max-task-managers).",
                value=self.most,
                rule="budget",
            )

    def _enter(self, kind: str, state: NodeState, why: str, now: float) -> Node:
        node = Node(self._name(), kind, state, now, now, why, self._urls.pop(0) if kind == CONNECT else None)
        self.nodes[node.id] = node
        return node

    def _promoted(self, node: Node, why: str, now: float) -> Node:
        promoted = self.nodes[node.id] = replace(node, state=NodeState.STARTING, asked=now, why=why)
        return promoted

    def _displaced(self, up: Collection[str]) -> tuple[Close, ...]:
        """Drop a start made ahead, where an asked-for one needs its room."""
        ahead = self._ahead()
        if ahead is None or self._total(up) <= self.most:
            return ()
        del self.nodes[ahead.id]
        return (Close(ahead),)


_IS: Mapping[NodeState, str] = {
    NodeState.STARTING: "starting",
    NodeState.PREPARING: "being prepared to stand by",
    NodeState.STANDBY: "standing by (%qod up --no-standby keeps none)",
}


def _told(node: Node, now: float) -> str:
    match node.state:
        case NodeState.STANDBY:
            return f"{node.id} standing by"
        case NodeState.PREPARING:
            return f"{node.id} being prepared to stand by for {now - node.begun:.0f} s"
        case _:
            why = f" ({node.why})" if node.why else ""
            return f"{node.id} {node.state} for {now - node.asked:.0f} s{why}"
