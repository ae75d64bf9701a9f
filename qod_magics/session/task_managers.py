"""The task managers that a user adds and removes by hand, within the session's budget if it has one."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence

from qod_magics.errors import UsageProblem
from qod_magics.machine.cores import is_limited, planned_cpus
from qod_magics.session.budget import CONNECT, LOCAL, Budget, check_url
from qod_magics.session.nodes import SessionNodes
from qod_magics.session.pool import Pool
from qod_magics.session.provisioning import BudgetMaker, Provisioner
from qod_magics.session.settings import Settings, check_kind
from qod_magics.spark.runtime import SparkRuntime
from qod_magics.spark.servers.server import ServerOptions
from qod_magics.spark.servers.task_manager import TaskManager

#: The smallest share of its cores to which a task manager can be limited.
LEAST_SHARE = 0.05


class TaskManagers:
    """Adds and removes them, and waits for that.

    Args:
        runtime: which they join and leave.
        provisioner: starts them.
        settings: options of local ones.

    Attributes:
        nodes: adds and releases them within a budget; None without one.

    """

    def __init__(self, runtime: SparkRuntime, provisioner: Provisioner, settings: Settings) -> None:
        self._runtime, self._provisioner, self._settings = runtime, provisioner, settings
        self.nodes: SessionNodes | None = None

    def __repr__(self) -> str:
        return f"task managers {', '.join(self._runtime.task_managers) or 'none'}; {self.nodes or 'no budget'}"

    def use(self, budget: Budget) -> None:
        """Let plans add and release them within the budget, if it has a limit. Call it once the first have joined."""
        if budget.most is not None:
            maker = BudgetMaker(self._provisioner, self._settings, budget.each)
            # those of a local one are known: the last one may have been added by hand, with others
            local = planned_cpus(budget.each) * (1 - self._settings.headroom)
            cores = ChainMap({LOCAL: local}, self._provisioner.cores_of)
            pool = Pool(budget, self._provisioner.name, cores, self._provisioner.start_s)
            self.nodes = SessionNodes(pool, maker, self._runtime)
            self._runtime.use_nodes(self.nodes)

    def add(
        self,
        url: str | None,
        cores: int | None,
        cpus: Sequence[int] | None,
        ui: str | None,
        jit: str | None,
        memory: str | None,
        slots: int | None,
    ) -> str:
        """`Session.add_task_manager`."""
        of_local = {"cpus": cpus, "jit": jit, "memory": memory, "slots": slots}
        check_kind(url, {"ui": ui}, of_local)
        if url is not None:
            check_url(url)
        if cores is not None and cpus is not None:
            raise UsageProblem("--cores and --cpus both say which cores it has: leave one of them out")
        if cores is not None and cores < 1:
            raise UsageProblem(f"a task manager of {cores} cores: it needs 1 or more")
        made = self._provisioner

        def options() -> ServerOptions:
            pinned = cpus is not None or not is_limited()
            return self._settings.server(made.cores(cores, cpus), pinned, slots=slots, jit=jit, memory=memory)

        def make(id: str) -> TaskManager:
            return made.started(id, options) if url is None else made.connected(id, url, ui, cores)

        if url is None:
            options()  # wrong ones are refused before a standby gives way

        if self.nodes is None:
            return made.join(make(made.name())).id
        plain = all(option is None for option in (url, cores, *of_local.values()))
        return self.nodes.admit(LOCAL if url is None else CONNECT, make, plain=plain, url=url)

    def remove(self, id: str, kill: bool) -> bool:
        """`Session.remove_task_manager`."""
        if kill:
            if self.nodes is None or not self.nodes.kill(id):
                self._runtime.kill_task_manager(id)
        elif self.nodes is not None:
            return self.nodes.remove(id)
        else:
            self._runtime.remove_task_manager(id)
        return False

    def limit(self, id: str, share: float) -> None:
        """`Session.limit_cpu`."""
        if not LEAST_SHARE <= share <= 1.0:  # also NaN
            raise UsageProblem(
                f"the CPU of a task manager must be a share of its cores from {LEAST_SHARE:g} to 1, got {share!r}"
            )
        self._runtime.limit_cpu(id, share)

    def end(self) -> None:
        """Start nothing more within the budget, and close the standby."""
        if self.nodes is not None:
            self.nodes.end()
