"""What one `%%qod_stream` cell declares."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from qod_magics.application.graph import check_stream_name
from qod_magics.application.streams.rules import Rule
from qod_magics.application.streams.sink import Memory, Sink
from qod_magics.application.streams.topic_input import LATER, TopicInput
from qod_magics.errors import ApplicationError, nearest

if TYPE_CHECKING:
    from qod_magics.application.recipes.recipe import Recipe

Mode = Literal["auto", "realtime", "microbatch"]
MODES: tuple[str, ...] = get_args(Mode)
#: Spark's minimum duration of a real-time batch, in seconds
LEAST_REALTIME_TRIGGER_S = 5.0
#: minimum of seconds after which tables beside a stream are read again: its query restarts
LEAST_REFRESH_S = 5.0
#: maximum number of instances of a task whose streams state none
DEFAULT_MAX_PARALLELISM = 8
#: approximate minimum latency of micro-batches, seconds: a query with a lower maximum gets real-time mode
BATCH_LATENCY_S = 1.0
#: the defaults of a query without restrictions: the lowest ordinary priority ...
DEFAULT_PRIORITY = 0
#: ... and no shedding, unless the user allows it
DEFAULT_MIN_ACCURACY = 1.0


@dataclass(frozen=True, slots=True)
class StreamDeclaration:
    """A stream: a recipe over inputs, and the user's requirements. Validated by itself on creation.

    Restrictions (`priority`, `min_accuracy`) belong to *queries*: streams that nobody reads and that state a sink or a
    restriction. The defaults are priority 0, minimum accuracy 1.0 (no shedding unless the user allows it) and
    the memory sink. A stream that states neither waits until somebody reads it.

    Raises ApplicationError for values out of range and for options that contradict one another.
    """

    name: str
    recipe: Recipe
    inputs: TopicInput | tuple[str, ...] = ()  #: a topic, or streams; (): the recipe reads a source of its own
    priority: int | None = None  #: higher wins
    min_accuracy: float | None = None  #: fraction of 1: minimum share of the input that must reach the result
    parallelism: int = 1  #: instances
    max_parallelism: int | None = None  #: maximum number of instances when it is scaled; None: not stated
    near: str | None = None  #: a stream beside which its instances start, where they have the CPU; None: anywhere
    key: str | None = None  #: column that partitions the inputs' rows over the instances
    sink: Sink | None = None
    mode: Mode = "auto"
    trigger_s: float | None = None  #: seconds between batches; None: the runtime's choice
    #: seconds after which tables beside it are read again; None: never
    refresh_s: float | None = field(default=None, metadata=LATER)
    #: target of the 95th percentile of latency, from a row's arrival to its result, seconds; None: not stated
    max_latency_s: float | None = None
    utility: float | None = None  #: of meeting the target; None: the priority
    min_juice: float | None = None  #: share of the rows that arrive which must be processed; None: not stated
    lend: bool = False  #: whether instances may count rows of a key for the one that it belongs to
    fuse: bool = True  #: may share a Spark query with its neighbour
    expect: tuple[Rule, ...] = ()  #: what is true of each of its rows

    def __post_init__(self) -> None:
        check_stream_name(self.name)
        self._check_numbers()
        if len({each.condition for each in self.expect}) < len(self.expect):
            raise ApplicationError("--expect names a rule twice: leave one of them out", option="--expect")
        self._check_inputs()
        self._check_lend()
        self._check_mode()

    @property
    def topic(self) -> TopicInput | None:
        """Return the topic that feeds it, if one does."""
        return self.inputs if isinstance(self.inputs, TopicInput) else None

    @property
    def upstream(self) -> tuple[str, ...]:
        """Return the streams that feed it."""
        return () if isinstance(self.inputs, TopicInput) else self.inputs

    @property
    def input_names(self) -> tuple[str, ...]:
        """Return the names by which its recipe sees its inputs."""
        return self.inputs.names if isinstance(self.inputs, TopicInput) else self.inputs

    @property
    def restricted(self) -> bool:
        """Return whether it states a priority or a minimum accuracy."""
        return self.priority is not None or self.min_accuracy is not None

    @property
    def demands(self) -> str:
        """Return what makes it a query, as the user would write it: "--sink memory -p 2"; empty when nothing does."""
        stated = (("--sink", self.sink), ("--priority", self.priority), ("--min-accuracy", self.min_accuracy))
        return " ".join(f"{option} {value}" for option, value in stated if value is not None)

    @property
    def effective_priority(self) -> int:
        """Return the priority it runs at if it is a query."""
        return DEFAULT_PRIORITY if self.priority is None else self.priority

    @property
    def effective_min_accuracy(self) -> float:
        """Return the minimum accuracy it runs at if it is a query."""
        return DEFAULT_MIN_ACCURACY if self.min_accuracy is None else self.min_accuracy

    @property
    def is_hurried(self) -> bool:
        """Return whether its maximum latency is below that of micro-batches."""
        return self.max_latency_s is not None and self.max_latency_s < BATCH_LATENCY_S

    @property
    def effective_sink(self) -> Sink:
        """Return where its rows go if it is a query."""
        return Memory() if self.sink is None else self.sink

    def _check_numbers(self) -> None:
        check_priority(self.priority)
        check_min_accuracy(self.min_accuracy)
        if isinstance(self.parallelism, bool) or not isinstance(self.parallelism, int) or self.parallelism < 1:
            raise ApplicationError(f"parallelism counts instances: a whole number from 1, not {self.parallelism!r}")
        most = self.max_parallelism
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < self.parallelism):
            raise ApplicationError(
                f"max-parallelism is a whole number from the parallelism, {self.parallelism}, not {most!r}"
            )
        if self.trigger_s is not None and not (_is_number(self.trigger_s) and 0 < self.trigger_s < math.inf):
            raise ApplicationError(f"trigger is in seconds and above 0, not {self.trigger_s!r}")
        refresh_s = self.refresh_s
        if refresh_s is not None and not (_is_number(refresh_s) and LEAST_REFRESH_S <= refresh_s < math.inf):
            raise ApplicationError(
                f"--refresh must be from {LEAST_REFRESH_S:g} s and finite, as the query restarts each time, got "
                f"{refresh_s!r}; write it as 10m",
                value=refresh_s,
                option="--refresh",
                rule="in range",
            )
        if refresh_s is not None and self.trigger_s is not None and refresh_s < self.trigger_s:
            raise ApplicationError(
                f"--refresh must be at least --trigger, {self.trigger_s:g} s, as a restart runs a batch at once, got "
                f"{refresh_s:g} s; give a longer --refresh",
                value=refresh_s,
                option="--refresh",
                rule="trigger",
            )
        check_max_latency(self.max_latency_s)
        check_utility(self.utility)
        check_min_juice(self.min_juice)

    def _check_inputs(self) -> None:
        if not isinstance(self.inputs, TopicInput) and len(set(self.inputs)) < len(self.inputs):
            twice = next(name for name in self.inputs if self.inputs.count(name) > 1)
            raise ApplicationError(f"{self.name!r} names its input {twice!r} twice; once is enough")
        if self.key is not None and not self.key.strip():
            raise ApplicationError(f"the key of {self.name!r} is empty: name a column of its inputs")
        if self.key is not None and self.topic is not None:
            raise ApplicationError(
                f"{self.name!r} reads the topic {self.topic.topic!r}, whose own partitions spread its rows: remove "
                "--key, or put it on a stream that reads this one"
            )
        if not self.input_names:
            if self.parallelism > 1:
                raise ApplicationError(
                    f"{self.name!r} reads a source of its own, which can't be split among {self.parallelism} "
                    "instances: give it --topic or --from, or parallelism 1"
                )
            if self.key is not None:
                raise ApplicationError(f"{self.name!r} has no input whose rows --key {self.key} could spread")

    def _check_lend(self) -> None:
        if not self.lend:
            return
        if self.key is None or self.parallelism < 2:
            raise ApplicationError(
                f"--lend of {self.name!r} must have a key and two instances to lend between, got "
                f"{'no key' if self.key is None else 'one instance'}; add --key COLUMN --parallelism 2",
                name=self.name,
                option="--lend",
                rule="instances",
            )
        if not isinstance(self.effective_sink, Memory):
            raise ApplicationError(
                f"--lend of {self.name!r} must have the memory sink, whose readers merge the parts of a group, got "
                f"{self.effective_sink}; leave one of them out",
                name=self.name,
                option="--lend",
                rule="memory",
            )

    def _check_mode(self) -> None:
        if self.mode not in MODES:
            raise ApplicationError(f"unknown mode {self.mode!r}.{nearest(self.mode, MODES)}")
        if self.mode != "realtime":
            return
        if self.sink is not None and not self.sink.realtime:
            raise ApplicationError(f"real-time mode can't write {self.sink}: take --mode auto or microbatch")
        if self.refresh_s is not None:
            raise ApplicationError(
                "--refresh must go with micro-batches, as a restart has a real-time batch read again, got --mode "
                "realtime; leave --mode out",
                value=self.mode,
                option="--refresh",
                rule="mode",
            )
        if self.trigger_s is not None and self.trigger_s < LEAST_REALTIME_TRIGGER_S:
            raise ApplicationError(
                f"a real-time batch lasts at least {LEAST_REALTIME_TRIGGER_S:g} s (rows do not wait for its end), "
                f"not {self.trigger_s:g}: leave --trigger out, or take --mode microbatch"
            )


def check_priority(priority: int | None) -> None:
    """ApplicationError unless it is a whole number or None."""
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int)):
        raise ApplicationError(
            f"priority must be a whole number (higher wins), got {priority!r}", value=priority, rule="whole"
        )


def check_max_latency(seconds: float | None) -> None:
    """ApplicationError unless it is a number of seconds above 0, or None."""
    if seconds is not None and not (_is_number(seconds) and math.isfinite(seconds) and seconds > 0):
        raise ApplicationError(
            f"maximum latency must be a number of seconds above 0, got {seconds!r}", value=seconds, rule="in range"
        )


def check_utility(utility: float | None) -> None:
    """ApplicationError unless it is a finite number of 0 or more, or None."""
    if utility is not None and not (_is_number(utility) and math.isfinite(utility) and utility >= 0):
        raise ApplicationError(f"utility must be at least 0, got {utility!r}", value=utility, rule="in range")


def check_min_juice(juice: float | None) -> None:
    """ApplicationError unless it is a fraction above 0 and up to 1, or None."""
    if juice is not None and not (_is_number(juice) and 0 < juice <= 1):
        raise ApplicationError(
            f"minimum juice must be a fraction above 0 and up to 1, got {juice!r}", value=juice, rule="in range"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_min_accuracy(min_accuracy: float | None) -> None:
    """ApplicationError unless it is a fraction of 1 or None."""
    if min_accuracy is None:
        return
    number = _is_number(min_accuracy)
    if not number or not 0 <= min_accuracy <= 1:
        percent = number and 1 < min_accuracy <= 100
        hint = f": write {min_accuracy / 100:g} for {min_accuracy:g} %" if percent else ""
        raise ApplicationError(
            f"min-accuracy is a fraction between 0 and 1, not {min_accuracy!r}{hint}", rule="between 0 and 1"
        )
