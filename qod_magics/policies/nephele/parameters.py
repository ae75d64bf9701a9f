"""What can be set, with the source's defaults (sections 3.5 and 4) or, where it gives none, ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, Literal, get_args

from qod_magics.core.channel_qos import Queued
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
        """From JSON: an object with some of the names above; None: the defaults."""
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
