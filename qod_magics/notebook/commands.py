"""What all commands of `%qod` share, and the commands about decisions: each calls a method of the session."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Any

from qod_magics.core.policy import StagedPolicy
from qod_magics.errors import UsageProblem
from qod_magics.notebook.options import CONFIGURED, RESTRICTIONS

if TYPE_CHECKING:
    from qod_magics.session.session import Session


class Commands:
    """The session that commands are about; the traits are those of `magics.QodMagics`."""

    session: Session | None
    shell: Any
    quiet: Any  #: whether nothing is said on success

    def names(self, kind: str) -> Iterable[str]:
        """Return the names of a kind that there are now: of streams, instances, task managers, shedders, or stages."""
        if (session := self._there) is None:
            return ()
        if kind == "stages":
            policy = session.controller.policy
            return policy.stage_names if isinstance(policy, StagedPolicy) else ()
        if kind == "streams":
            return session.application.names
        found: Iterable[str] = session.shedders if kind == "shedders" else getattr(session.runtime, kind)
        return found

    def _session(self) -> Session:
        if self.session is None or not self.session.alive:
            raise UsageProblem("nothing is up: begin with %qod up (or %qod attach, for the notebook's own session)")
        return self.session

    @property
    def _defaults(self) -> dict[str, Any]:
        """Those that `%config` holds, by the names of their options."""
        values = {row.name: getattr(self, row.flag.lstrip("-")) for row in CONFIGURED}
        return {name: None if value == "" else value for name, value in values.items()}

    @property
    def _there(self) -> Session | None:
        return self.session if self.session is not None and self.session.alive else None

    def _say(self, line: str) -> None:
        if not self.quiet:
            print(line, flush=True)


class DecisionCommands(Commands):
    """`set`, `why`, `policy`, `pause`, `resume`, `period`, `override`, `cpu`."""

    def _set(self, given: Namespace) -> None:
        wanted = (
            ("priority", given.priority, ""),
            ("minimum accuracy", given.min_accuracy, ""),
            ("maximum latency", given.max_latency_s, " s"),
            ("utility", given.utility, ""),
        )
        told = [
            f"no {what}" if value == inf else f"{what} {value:g}{unit}"
            for what, value, unit in wanted
            if value is not None
        ]
        if not told:
            ways = ", ".join(f"{row.flag} {row.metavar}" for row in RESTRICTIONS)
            raise UsageProblem(f"%qod set {given.name}: nothing to set; say {ways}, or several of them")
        note = self._session().set(**vars(given))
        also = f"; {note}" if note else ""
        self._say(f"{given.name} has {' and '.join(told)} from the next cycle on{also}")

    def _why(self, given: Namespace) -> None:
        session = self._session()
        print(session.stages if given.name is None else session.why(given.name))

    def _pause(self, given: Namespace) -> None:
        if given.stage is None:
            self._session().pause()
            self._say("paused: plans are recommended, not applied")
        else:
            self._session().pause_stage(given.stage)
            self._say(f"stage {given.stage} is paused: it proposes nothing")

    def _policy(self, given: Namespace) -> None:
        if given.name is not None:
            self._session().set_policy(given.name)
        print(self._session().stages)

    def _period(self, given: Namespace) -> None:
        self._session().set_period(given.seconds)
        self._say(f"a decision every {given.seconds:g} s")

    def _override(self, given: Namespace) -> None:
        try:
            d = None if given.d == "auto" else float(given.d)
        except ValueError:
            raise UsageProblem(f"%qod override: {given.d!r} is neither a fraction nor auto") from None
        note = self._session().override(given.name, d)
        done = "follows the plan again" if d is None else f"is held at {d:g}"
        self._say(f"{given.name} {done}{f'; {note}' if note else ''}")

    def _cpu(self, given: Namespace) -> None:
        self._session().limit_cpu(given.task_manager, given.share)
        self._say(f"plans use at most {given.share:.0%} of the cores of {given.task_manager} from the next cycle on")

    def _resume(self, given: Namespace) -> None:
        if given.stage is None:
            self._session().resume()
            self._say("plans are applied again")
        else:
            self._session().pause_stage(given.stage, False)
            self._say(f"stage {given.stage} proposes actions again")
