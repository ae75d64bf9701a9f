"""Start and stop single instances, and report their failures to their `QueryLife`."""

from __future__ import annotations

import re
import time
from concurrent.futures import wait
from functools import partial

from qod_magics.application.streams.rules import BROKEN
from qod_magics.errors import TaskManagerError
from qod_magics.formats.format import why_malformed
from qod_magics.formats.schema_registry import SILENT
from qod_magics.lifecycle.events import Cause, Failed, StallEnded, State, Tell
from qod_magics.machine.releases import CONNECTOR_FAULT
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.reports import reports_ended, run_ended, take_reports
from qod_magics.spark.cluster.state import shuffle_for
from qod_magics.spark.plans.parsing import FAILS, JSON, OUT_OF_RANGE, SHOWN
from qod_magics.spark.plans.writing import TOO_LARGE
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.modes import not_realtime, refuses_realtime
from qod_magics.spark.queries.slots import free
from qod_magics.spark.servers.connection import begin
from qod_magics.spark.servers.task_manager import TaskManager

#: Timeout from a query's start to its first tasks, seconds; one still planning then is taken for settled.
SETTLED_S = 60.0


class Lifecycle:
    """Starts, settles, stops and fails instances. Any thread may call it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __repr__(self) -> str:
        return f"lifecycle of {len(self.cluster.instances)} instances"

    def start(self, instance: Instance, manager: TaskManager) -> None:
        """Start an instance on a task manager. Raises QodError."""
        if instance.has_ended:
            run_ended(self.cluster, instance)
        self.cluster.before_start()
        instance.start(
            manager,
            self.cluster.board,
            self.cluster.kafka_options,
            self.cluster.dials_of(instance),
            free([manager], [other for other in self.cluster.all_instances if other is not instance])[manager.id],
            self.cluster.deployment.sources,
            partial(run_ended, self.cluster, instance),
            shuffle_for(self.cluster, instance, manager),
            self.cluster.patience.starts_s,
        )

    def stop(
        self, instance: Instance, at_batch_end_s: float = 0.0, *, ended: bool = False, read_on: bool = True
    ) -> None:
        """Stop its query as `Instance.stop` does, and enter its reports in the row accounting, even if that raises.
        Unless its input is `read_on` from there, nothing is read again, but by its next start."""
        try:
            instance.stop(at_batch_end_s, ended=ended)
        finally:
            take_reports(self.cluster, instance)
            if instance.has_ended:
                reports_ended(self.cluster, instance)
            if instance.has_ended and read_on:
                run_ended(self.cluster, instance)

    def settle(self, instance: Instance) -> None:
        """Wait until the first real-time batch of a query that was just started has tasks: Spark refuses some plans
        only then. These fall back to micro-batches, unless real-time mode was requested.

        Raises:
            TaskManagerError: real-time mode was requested and is refused.

        """
        begun, answered, untold_s = time.monotonic(), False, self.cluster.patience.untold_s
        while instance.mode == "real-time" and instance.state is State.RUNNING:
            with instance.lock:
                manager, run_id = instance.task_manager, instance.run_id
                why = instance.failed()
                if manager is None or run_id is None:
                    return
                if why is None:
                    works = manager.works_on(run_id)
                    answered = answered or works is not None
                    if works or time.monotonic() - begun >= (SETTLED_S if answered else untold_s):
                        return
                elif not refuses_realtime(why):
                    return  # a failure like any other: found at the next poll
                elif instance.mode_wanted == "realtime":
                    raise TaskManagerError(
                        f"{instance.id} can't run in real-time mode: {not_realtime(why, manager.kind)}.",
                        name=instance.id,
                        rule="real-time",
                    )
                else:
                    instance.fall_back(why)
                    self.start(instance, manager)
                    return
            time.sleep(0.1)

    def end(
        self,
        instance: Instance,
        source: TaskManager,
        at_batch_end_s: float | None = None,
        kind: str = "move-waits",
        *,
        ended: bool = False,
    ) -> bool:
        """Stop its run as `Instance.stop` does, and wait without a timeout until it has ended. Return False if its task
        manager is gone; the instance then waits for another. Raises whatever stopping raises."""
        patience = self.cluster.patience
        wait_s = patience.batch_s + patience.late_s if at_batch_end_s is None else at_batch_end_s
        stopping = begin(lambda: self.stop(instance, wait_s, ended=ended), f"stopping-{instance.id}")
        begun, reported = time.monotonic(), False
        while not stopping.done():
            wait((stopping,), 0.25)
            removed = not self.cluster.has(source)
            if not source.alive() or (removed and source.kind == "connect"):  # which ends its session
                if removed and instance.task_manager is source:
                    instance.detach(f"{source.id} was removed", source.id)
                return False  # a lost one is handled by `recover_lost`
            if not reported and time.monotonic() - begun > patience.stop_s:
                reported = True
                why = f"it has not ended on {source.id} for {patience.stop_s:g} s, and starts again only once it has"
                self.cluster.event(kind, instance=instance.id, task_manager=source.id, why=why)
        stopping.result()
        return instance.task_manager is source

    def fail_on(self, instance: Instance, manager: TaskManager, why: str) -> None:
        """Handle a failed start on `manager`, unless the instance was detached from it meanwhile."""
        if instance.task_manager is manager:
            self.fail(instance, why)

    def fail(
        self,
        instance: Instance,
        why: str,
        manager: TaskManager | None = None,
        *,
        stalled_s: float | None = None,
        ended: bool = False,
        cause: Cause | None = None,
        run: int | None = None,
        stopping: bool = False,
    ) -> None:
        """Report a query that ended by itself, or was stopped after a stall of `stalled_s` seconds; `QueryLife` decides
        whether it restarts. If its task manager is gone, it waits for another.

        Args:
            instance: the instance whose query it is.
            why: the failure.
            manager: where it failed, if it is detached from there.
            stalled_s: how long no batch had ended, or read a row; None: it has not stalled.
            ended: whether its run is known to have ended; else the next start stops it first.
            cause: of the failure; None: as the failure says.
            run: the run of `QueryLife` that has ended, if one had begun.
            stopping: whether it could not be stopped for a move.

        """
        if instance.state is State.STOPPED:
            return
        put_back, manager = manager is not None, manager or instance.task_manager
        if manager is None or not manager.alive() or not self.cluster.has(manager):
            instance.detach(why)
            return
        leaving, told = manager.id in self.cluster.leaving, explained(why, instance)
        needs_plan = [feed.values.needs_plan(why) for feed in instance.job.feeds]  # each notes its own
        if cause is None and True in needs_plan:
            cause = Cause.PLAN
        event: Failed | StallEnded
        if stalled_s is not None:
            event = StallEnded(told, stalled_s, leaving=leaving)
        else:
            event = Failed(
                told,
                cause or cause_of(why),
                run,
                row_limit=limit_of(why),
                leaving=leaving,
                put_back=put_back,
                stopping=stopping,
            )
        for each in instance.fail(event, manager, ended=ended):
            if isinstance(each, Tell):
                self.cluster.event(each.kind, instance=instance.id, task_manager=manager.id, **each.detail)


# --- Causes of failures -----------------------------------------------------------------------------------------------
# Find the cause of a failed query: whether the same rows will fail again. Pure.
#
# A retry reads the batch once more, and writes the rows in front of the failing one once more. It is for failures that
# may pass: of the broker, of the network, of a task manager. Rows that can't be parsed, cast or sent fail each time.


#: Spark's error classes of values, not of the cluster: these depend on the rows alone.
_OF_VALUES = re.compile(
    r"\[(?:CAST_INVALID_INPUT|CAST_OVERFLOW\w*|CANNOT_PARSE_\w+|DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|\w*ARITHMETIC_OVERFLOW|"
    r"NUMERIC_VALUE_OUT_OF_RANGE|INVALID_ARRAY_INDEX\w*|INVALID_INDEX\w*|DATETIME_OVERFLOW|INVALID_DATETIME_\w+|"
    r"INVALID_PARAMETER_VALUE|MALFORMED_\w+|NULL_MAP_KEY|DUPLICATED_MAP_KEY|USER_RAISED_EXCEPTION|INVALID_UTF8_STRING|"
    r"FAILED_EXECUTE_UDF|ASSERT_TRUE\w*)[\].]"
)
#: Errors of functions in Python, and those of them that may pass: such a function may ask another server.
_IN_PYTHON = re.compile(r"\[PYTHON_EXCEPTION\]|PythonException|Python worker")
_MAY_PASS = re.compile(
    r"timeout|timed out|connect|network|socket|HTTP|URL|OSError|IOError|BrokenPipe|EOFError|unavail", re.IGNORECASE
)
_TOO_LARGE = re.compile(r"RecordTooLargeException|larger than the max message size|MESSAGE_TOO_LARGE")
_LIMIT = re.compile(r"which is larger than (\d+)")
_TIME = re.compile(rf".+{OUT_OF_RANGE}: -?\d+\s*")
#: Spark's Kafka connector before 4.1.3 ends a query so when it reports a batch that an earlier run had begun: the batch
#: has ended by then, and the next run goes on behind it (SPARK-57438).
_UNREPORTED = re.compile(r'IterableOps\.map\(.*because the return value of "scala\.Option\.get\(\)" is null')
#: Kafka's default limit of a record, bytes; where a broker does not say its own.
DEFAULT_LIMIT = 1_048_576
#: The rest of a record beside its value: key, headers and overhead.
_OF_LIMIT = 0.98


def limit_of(why: str) -> int | None:
    """Return the bytes that a record's value may have, if a failure says that one was too large; None for other
    failures."""
    if not _TOO_LARGE.search(why):
        return None
    found = _LIMIT.search(why)
    return round(_OF_LIMIT * (int(found[1]) if found else DEFAULT_LIMIT))


def cause_of(why: str) -> Cause:
    """Return what a failure says about the next try: the rows can't be parsed or sent in any case, or fail again unless
    what they depend on, such as a table that a function reads, is fixed; or the failure may pass."""
    if FAILS in why or BROKEN in why or TOO_LARGE in why or _TOO_LARGE.search(why):
        return Cause.CERTAIN
    if SILENT in why:
        return Cause.SERVICE
    in_python = bool(_IN_PYTHON.search(why)) and not _MAY_PASS.search(why)
    return Cause.ROWS if in_python or _OF_VALUES.search(why) else Cause.MAY_PASS


def explained(why: str, instance: Instance) -> str:
    """Return the failure, with the column for a value that does not fit the schema of the instance's only topic, and
    with what to do about a fault of Spark's connector."""
    if _UNREPORTED.search(why):
        return f"{why}: {'; '.join(CONNECTOR_FAULT)}"
    _, found, value = why.partition(FAILS)
    value = value.partition(" SQLSTATE: ")[0]
    schemas = list(instance.facts.schemas.values()) if instance.facts is not None else []
    if not found or len(schemas) != 1 or instance.facts is None or _TIME.fullmatch(value):
        return why
    forms = [feed.values for feed in instance.job.feeds if feed.topic in instance.facts.schemas] or [JSON]
    because = why_malformed(forms[0], value, schemas[0], cut=len(value) >= SHOWN)
    return f"{why}: {because}" if because else why
