"""What all commands of `%qod` share, and the names that they complete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qod_magics.core.policy import StagedPolicy
from qod_magics.errors import UsageProblem
from qod_magics.policies import policy_names

if TYPE_CHECKING:
    from qod_magics.session.session import Session


class Commands:
    """The session that commands are about; the traits are those of `magics.QodMagics`."""

    session: Session | None
    shell: Any
    policy: Any  #: name of the default policy
    quiet: Any  #: whether nothing is said on success

    @property
    def streams(self) -> list[str]:
        """Declared streams."""
        return list(session.application.names) if (session := self._there) else []

    @property
    def instances(self) -> list[str]:
        """Ids of the instances."""
        return list(session.runtime.instances) if (session := self._there) else []

    @property
    def task_managers(self) -> list[str]:
        """Ids of the task managers."""
        return list(session.runtime.task_managers) if (session := self._there) else []

    @property
    def shedders(self) -> list[str]:
        """Sources, and streams "from>to"."""
        return list(session.shedders) if (session := self._there) else []

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of policies."""
        return policy_names()

    @property
    def stages(self) -> tuple[str, ...]:
        """Stages of the policy that decides."""
        decides = session.controller.policy if (session := self._there) else None
        return decides.stage_names if isinstance(decides, StagedPolicy) else ()

    def _session(self) -> Session:
        if self.session is None or not self.session.alive:
            raise UsageProblem("nothing is up: begin with %qod up (or %qod attach, for the notebook's own session)")
        return self.session

    @property
    def _policies(self) -> str:
        return f"one of {', '.join(policy_names())}; default {self.policy}"

    @property
    def _there(self) -> Session | None:
        return self.session if self.session is not None and self.session.alive else None

    def _say(self, line: str) -> None:
        if not self.quiet:
            print(line, flush=True)
