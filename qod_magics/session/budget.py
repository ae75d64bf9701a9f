"""The budget of a session: how many task managers it may have, and which ones plans may add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from qod_magics.errors import UsageProblem
from qod_magics.machine.cores import core_sets, usable_cores
from qod_magics.spark.servers.connection import hidden

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
            raise UsageProblem(f"{self.local} task managers can't run anything: take 1 or more, or --connect URL")
        if self.local == 0 and self.cores is not None:
            raise UsageProblem(
                f"--cores {self.cores} is of local task managers, and none is started: leave it out; those of a server "
                "that does not tell them are given by %qod add-tm URL --cores N"
            )
        if self.most is None:
            if self.spare_connect or not self.standby:
                raise UsageProblem("--spare-connect and --no-standby are of a budget: add --max-task-managers N")
            return
        if self.most < first:
            raise UsageProblem(
                f"--max-task-managers {self.most} is less than the {first} to start with: take {first} or more"
            )
        if self.local == 0 and self.most > first and not self.spare_connect:
            raise UsageProblem(
                f"--max-task-managers {self.most} beside --connect alone: name servers that may join "
                "(--spare-connect URL), or start a local one (--task-managers 1)"
            )

    @property
    def most_local(self) -> int:
        """The number of local ones at the same time."""
        if self.local == 0:
            return 0
        return self.local if self.most is None else self.most - len(self.connect)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that may be added."""
        remote = self.connect or self.spare_connect
        return (*([LOCAL] if self.local else []), *([CONNECT] if remote else []))

    @property
    def each(self) -> int:
        """The number of cores of each local one. Raises UsageProblem: the machine has fewer."""
        return len(next(iter(core_sets(self.most_local, self.cores)), None) or ())

    def core_sets(self) -> list[frozenset[int] | None]:
        """The cores of each local one to start with. Raises UsageProblem: the machine has fewer than one needs."""
        return core_sets(self.most_local, self.cores)[: self.local]

    @property
    def sharing(self) -> str:
        """What is done where the machine has too few cores for all local ones, in one line; "" elsewhere."""
        there, each = len(usable_cores()), self.each
        if self.most is None or self.most_local * each <= there:
            return ""
        return (
            f"up to {self.most_local} local task managers of {_cores(each)} each on this machine's {_cores(there)}: "
            f"from the {_ordinal(there // each + 1)} on they share cores"
        )


def check_url(url: str) -> None:
    """Raise UsageProblem for what can't be the URL of a server."""
    if not url.startswith("sc://"):
        raise UsageProblem(f"{hidden(url)!r} is no server: write sc://HOST:PORT")


def _cores(count: int) -> str:
    return f"{count} core{'' if count == 1 else 's'}"


def _ordinal(number: int) -> str:
    ending = "th" if 11 <= number % 100 <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
