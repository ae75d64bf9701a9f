"""The settings of a session: how it decides, and where recording and checkpoints go."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from qod_magics.errors import UsageProblem
from qod_magics.machine.java import DEFAULT_JIT
from qod_magics.machine.packages import expanded
from qod_magics.policies import DEFAULT_POLICY, policy
from qod_magics.spark.servers.conf import check_conf
from qod_magics.spark.servers.server import SLOTS, ServerOptions

#: Fraction of each task manager's cores that plans leave free, to drain backlogs and for the JVM itself.
HEADROOM = 0.1


def _notebook_directory() -> Path | None:
    """Return the kernel's working directory; None if it is gone or can't be entered."""
    try:
        here = Path.cwd()
    except OSError:
        return None
    return here if os.access(here, os.X_OK) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Options that `Session.up` and `Session.attach` share, validated before anything is started.

    Raises:
        UsageProblem: there is no such policy, or a value is out of range.
        SetupError: no local task manager can be started with these options.

    """

    policy_name: str = DEFAULT_POLICY
    period_s: float = 5.0  #: seconds between two decisions
    record: str | os.PathLike[str] | None = None  #: file for the recording; None: a temporary one
    checkpoints: str | None = None  #: URL or path that every task manager reaches; None: a temporary directory
    headroom: float = HEADROOM  #: fraction of 1
    warm_up_timeout_s: float = 60.0  #: timeout of an instance's warm-up, seconds
    #: of local task managers: JIT compilation, "full", or "c1" for runs of a few minutes: warm sooner, half as fast
    jit: str = DEFAULT_JIT
    memory: str = "1g"  #: their Java heap
    #: their working directory: the kernel's, as it is when the session begins
    directory: Path | None = field(default_factory=_notebook_directory)
    slots: int = SLOTS  #: their task slots: a query in real-time mode holds one per partition it reads or shuffles
    packages: Sequence[str] = ()  #: Maven packages that they load: group:artifact:version
    jars: Sequence[str | os.PathLike[str]] = ()  #: jars that they load
    conf: Mapping[str, str] = field(default_factory=dict)  #: Spark settings of theirs

    def __post_init__(self) -> None:
        policy(self.policy_name)
        check_conf(self.conf)
        self.server(None)
        if not (math.isfinite(self.period_s) and self.period_s > 0):
            raise UsageProblem(
                f"period must be greater than 0 s, got {self.period_s!r}",
                name="period_s",
                value=self.period_s,
                rule="above 0",
            )
        if not 0 <= self.headroom < 1:
            raise UsageProblem(
                f"headroom must be a fraction from 0 and below 1, got {self.headroom!r}",
                name="headroom",
                value=self.headroom,
                rule="fraction",
            )
        if self.record is not None and Path(self.record).expanduser().is_dir():
            raise UsageProblem(
                f"the recording needs a file, and {os.fspath(self.record)!r} is a directory: add a name to it",
                name="record",
                value=self.record,
                rule="file",
            )

    def check_local(self, local: bool) -> None:
        """Refuse jars and settings of local task managers where there is none. Raises UsageProblem."""
        given = [name for name in ("packages", "jars", "conf") if getattr(self, name)]
        if given and not local:
            raise UsageProblem(
                f"--{given[0]} is of local task managers, and none is started: give it to your server as it starts",
                name=given[0],
                rule="a local one",
            )

    def server(
        self,
        cpus: frozenset[int] | None,
        pinned: bool = True,
        *,
        slots: int | None = None,
        jit: str | None = None,
        memory: str | None = None,
    ) -> ServerOptions:
        """Return options of a local task manager on these cores (None: all), pinned to them or not; the other ones,
        where None, are the session's."""
        return ServerOptions(
            cpus,
            pinned,
            slots=self.slots if slots is None else slots,
            jit=self.jit if jit is None else jit,
            memory=self.memory if memory is None else memory,
            directory=self.directory,
            conf=self.conf,
            jars=expanded(self.jars),
            packages=tuple(self.packages),
        )


class SettingKeywords(TypedDict, total=False):
    """The fields of `Settings`, as keywords for type checkers."""

    policy_name: str
    period_s: float
    record: str | os.PathLike[str] | None
    checkpoints: str | None
    headroom: float
    warm_up_timeout_s: float
    jit: str
    memory: str
    directory: Path | None
    slots: int
    packages: Sequence[str]
    jars: Sequence[str | os.PathLike[str]]
    conf: Mapping[str, str]


def check_kind(url: str | None, of_servers: Mapping[str, object], of_local: Mapping[str, object]) -> None:
    """Refuse options of the other kind of task manager: the user's server at `url`, or a local one (None). Raises
    UsageProblem."""
    refused, why = of_local, "a local task manager, and the URL names a server of yours: leave one of them out"
    if url is None:
        refused, why = of_servers, "a server of yours: name its URL, too (sc://HOST:PORT)"
    for name, value in refused.items():
        if value is not None:
            raise UsageProblem(f"--{name} is an option of {why}", name=name, rule="other kind")


def check_session(url: str | None, others: Mapping[str, object]) -> None:
    """Refuse a URL and options beside a Spark session that is to be a task manager. Raises UsageProblem."""
    given = [name for name, value in {"url": url, **others}.items() if value is not None]
    if given:
        raise UsageProblem(
            f"a Spark session must be given without other options, got {', '.join(given)}; leave them out",
            name=given[0],
            rule="other kind",
        )
