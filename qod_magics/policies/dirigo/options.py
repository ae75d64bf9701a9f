"""What can be chosen (2.10), and where the source leaves a choice."""

from __future__ import annotations

from dataclasses import dataclass

from qod_magics.errors import UsageProblem


@dataclass(frozen=True, slots=True)
class Options:
    """Parameters of the policies. Raises UsageProblem, one line, for other values."""

    parallelism_range: int | None = None  #: N: workers that may run a function, its lessor included; None: all
    account_running: bool = True  #: E is the end of the running message; off: always now, as printed (E7)
    force_migrate: bool = True  #: a lessee takes what it is sent without a check
    random_lessee: bool = True  #: off: the one with the shortest queue by the last that is known of it
    search_range: int = 2  #: lessees asked per action, check-first
    reply_required: int = 1  #: replies after which an action is decided
    skip_doomed: bool = False  #: don't offer what would be late anywhere (A5)
    handle_between_messages: bool = False  #: a busy worker answers requests after the running message only (A4)
    marker_cost: int = 0  #: CPU of a worker per marker that reaches it, ns (ours: the source gives none)
    seed: int = 0  #: of the draws

    def __post_init__(self) -> None:
        if self.parallelism_range is not None and self.parallelism_range < 1:
            raise UsageProblem(f"parallelism_range: {self.parallelism_range} is below 1; give a number of workers")
        if self.search_range < 1:
            raise UsageProblem(f"search_range: {self.search_range} is below 1; give a number of lessees to ask")
        if not 1 <= self.reply_required <= self.search_range:
            raise UsageProblem(
                f"reply_required: {self.reply_required} is not within 1 and search_range, {self.search_range}"
            )
