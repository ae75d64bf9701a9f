"""Parameters of Nephele, and its two countermeasures: smaller output buffers, and chained tasks (section 3.5).

`step` sizes the output buffers of one channel (Eq. 2 and 3). `longest_chain` finds consecutive tasks that can share a
thread. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import floor, fsum, isfinite
from typing import Any, Literal, TypeVar, get_args

from qod_magics.core.job_graph import Queued
from qod_magics.core.wording import hint, show
from qod_magics.errors import UsageProblem

Chaining = Literal["after_buffers", "together", "never"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Raises UsageProblem, one line, for values out of range."""

    initial_bytes: int = 32768  #: buffer size at the start
    epsilon: int = 200  #: lower limit of a buffer size, bytes
    omega: int = 0  #: upper limit, bytes; 0: the initial size, as the source gives none (N10)
    r: float = 0.98  #: base of the factor by which a buffer shrinks
    s: float = 1.1  #: factor by which it grows
    min_obl_ms: float = 5.0  #: buffers in which items wait no longer are not shrunk
    zero_obl_ms: float = 1.0  #: buffers in which items wait no longer grow (N10)
    min_factor: float = 0.0  #: lower bound of the factor of one step; 0: none, as in the source
    cap_cores: float = 0.9  #: the tasks of a chain use less CPU than this in all
    #: whether a chain is tried once buffers can give no more (N17), in each pass, or never
    chaining: Chaining = "after_buffers"
    queued: Queued = "drop"  #: items queued between tasks that are chained: lost, or processed first
    never_chain: frozenset[str] = frozenset()  #: job vertices that are annotated, for recovery from logged buffers

    @classmethod
    def of(cls, given: Parameters | Mapping[str, Any] | None) -> Parameters:
        """Return parameters from JSON: an object with some of the names above; None: the defaults."""
        if isinstance(given, Parameters):
            return given
        values: dict[str, Any] = dict(given or {})
        known = {each.name: each.default for each in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise UsageProblem(f"parameters: {show(name)} is unknown.{hint(name, known)}")
            default = known[name]
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if isinstance(default, int | float) and not (is_number and isinstance(value, int | type(default))):
                raise UsageProblem(f"{name}: {show(value)} is not such a number as {default}; give one")
        if "never_chain" in values:
            values["never_chain"] = frozenset(values["never_chain"])
        return cls(**values)

    def __post_init__(self) -> None:
        if self.omega == 0:
            object.__setattr__(self, "omega", max(self.initial_bytes, self.epsilon))
        checks = (
            ("epsilon", self.epsilon, self.epsilon >= 1, "a size from 1 byte on, such as 200"),
            ("omega", self.omega, self.omega >= self.epsilon, "a size from epsilon on, such as 32768"),
            ("initial_bytes", self.initial_bytes, self.initial_bytes >= 1, "a size from 1 byte on, such as 32768"),
            ("r", self.r, 0 < self.r < 1, "a number between 0 and 1, such as 0.98"),
            ("s", self.s, self.s > 1 and isfinite(self.s), "a number above 1, such as 1.1"),
            ("min_factor", self.min_factor, 0 <= self.min_factor <= 1, "a number from 0 to 1, such as 0.1"),
            ("zero_obl_ms", self.zero_obl_ms, 0 <= self.zero_obl_ms <= self.min_obl_ms, "from 0 to min_obl_ms"),
            ("cap_cores", self.cap_cores, 0 < self.cap_cores <= 1, "a share of a core, such as 0.9"),
        )
        for name, value, holds, advice in checks:
            if not holds:
                raise UsageProblem(f"{name}: {show(value)} is out of range; give {advice}")
        for name, word, known in (
            ("chaining", self.chaining, get_args(Chaining)),
            ("queued", self.queued, get_args(Queued)),
        ):
            if word not in known:
                raise UsageProblem(f"{name}: {show(word)} is unknown; give one of {', '.join(known)}")


DEFAULTS = Parameters()


Verdict = Literal["shrink", "at-floor", "grow", "at-ceiling", "keep", "no-data"]


@dataclass(frozen=True, slots=True)
class Step:
    """A buffer size in bytes, and why it is that."""

    bytes: int
    verdict: Verdict


def step(bytes: int, life_ms: float | None, sender_ms: float | None, parameters: Parameters = DEFAULTS) -> Step:
    """Return the next size of a channel's output buffers, which lies on a violated sequence.

    Args:
        bytes: the size now.
        life_ms: mean life time of its buffers, opening to shipping (oblt); None without a fresh sample.
        sender_ms: mean task latency of the sending task; None if it is unknown or undefined, as a source's (N11).
        parameters: limits and factors.

    """
    if life_ms is None:
        return Step(bytes, "no-data")
    waits_ms = life_ms / 2  # obl: items arrive evenly while a buffer is open
    if waits_ms > parameters.min_obl_ms and waits_ms > (sender_ms or 0.0):
        factor = max(parameters.r**waits_ms, parameters.min_factor)
        smaller = max(parameters.epsilon, floor(bytes * factor))
        return Step(smaller, "shrink") if smaller < bytes else Step(bytes, "at-floor")
    if waits_ms <= parameters.zero_obl_ms:
        larger = min(parameters.omega, floor(parameters.s * bytes))
        return Step(larger, "grow") if larger > bytes else Step(bytes, "at-ceiling")
    return Step(bytes, "keep")


T = TypeVar("T")

#: Sums of CPU use that are nearer to the cap than this are at it: 0.35 + 0.05 + 0.15 + 0.35 is 0.9.
_SAME_CORES = 1e-9


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What decides whether a task may be chained."""

    process: str  #: that it is a thread of
    cpu_cores: float | None  #: use of its thread; None: not known yet, and then it is not chained
    incoming: int  #: channels in the whole runtime graph
    outgoing: int
    is_chained: bool = False
    may_chain: bool = True  #: False: annotated, so that its output stays complete for recovery


def longest_chain(tasks: Sequence[T], facts: Callable[[T], TaskFacts], cap_cores: float) -> tuple[T, ...]:
    """Return the longest run of two or more tasks that can be chained; of equal ones the first; () without any.

    Args:
        tasks: consecutive tasks of a sequence, each joined to the next by a channel.
        facts: of each task.
        cap_cores: the CPU use of a run is less than this in all.

    """
    known = [facts(task) for task in tasks]
    best: tuple[T, ...] = ()
    for first in range(len(tasks)):
        last = _end_of_run(known, first, cap_cores)
        if last - first >= 1 and last - first + 1 > len(best):
            best = tuple(tasks[first : last + 1])
    return best


def _end_of_run(known: Sequence[TaskFacts], first: int, cap_cores: float) -> int:
    """Return the index of the last task of the longest run from `first`: `first` itself if it cannot even be joined to
    one."""
    used: list[float] = []
    for i in range(first, len(known)):
        task = known[i]
        joins = i == first or (
            task.process == known[i - 1].process
            and task.incoming == 1  # inner tasks have one channel in and one out (N13)
            and known[i - 1].outgoing == 1
        )
        if task.is_chained or not task.may_chain or task.cpu_cores is None or not joins:
            return i - 1
        used.append(task.cpu_cores)
        if fsum(used) > cap_cores - _SAME_CORES:
            return i - 1
    return len(known) - 1
