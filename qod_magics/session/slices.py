"""Queries over the results of a query: split by time slice, answered where task managers keep copies, and merged.

A slice is some of the files that a query has written (`results.slices`). A copy of it is a cached view in a session of
ours on a task manager (`session.copies`). `Slices` reads and keeps them; Spark tells whether a query splits
(`session.parts`). A policy with rules for slices (`core.policy.SlicingPolicy`) says once a cycle which task managers
load and drop which. Under other policies files are read each time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from qod_magics.application.sql.names import tables_read
from qod_magics.application.sql.splitting import NOW, ROWS, Bound
from qod_magics.application.streams.sink import Parquet, is_url
from qod_magics.core.engines import Observation, Use
from qod_magics.core.policy import Router, SliceRules, SlicingPolicy
from qod_magics.errors import ApplicationError, TaskManagerError, counted
from qod_magics.results.slices import Kept, Limit, Ranges, Slice, committed, may_hold, sliced
from qod_magics.session.copies import Holder, copies_told, union
from qod_magics.session.parts import (
    UNDERSTOOD,
    Prepared,
    Table,
    kind,
    merged,
    nullable,
    prepared_for,
    settings_of,
    used,
    whole,
)
from qod_magics.spark.servers.connection import SIGNALS_S, begin, reason

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from qod_magics.controller.log import Cycle
    from qod_magics.session.interface import SessionInterface
    from qod_magics.spark.servers.task_manager import TaskManager

LOG = logging.getLogger(__name__)
#: Seconds of a slice under a policy that has no rules for them.
SLICE_S = 60.0
#: Texts whose split is kept.
_MOST_TEXTS = 200
_MICROS = "unix_micros({}({}))"


@dataclass(slots=True)
class _Seen:
    """A slice that queries asked for."""

    slice: Slice
    schema: StructType
    asked_at: float  #: monotonic seconds
    accesses: int = 0  #: since the last round
    busy_ns: int = 0  #: since the last round


@dataclass(slots=True)
class _State:
    """What rounds and queries share, behind the lock of `Slices`."""

    holders: dict[str, Holder] = field(default_factory=dict)
    seen: dict[str, _Seen] = field(default_factory=dict)
    ranges: dict[str, dict[str, Ranges]] = field(default_factory=dict)  #: by query, by id
    routers: dict[str, Router] = field(default_factory=dict)


class Slices:
    """Answers queries over results, and keeps copies of hot slices. Thread-safe.

    Args:
        session: the session.

    """

    def __init__(self, session: SessionInterface) -> None:
        self._session = session
        self._lock, self._making = threading.Lock(), threading.Lock()
        self._state = _State()
        self._prepared: dict[tuple[str, str], Prepared | str] = {}
        self._policy: object = None  #: that decided the last round
        self._memory: Any = None  #: of its replication policy
        self._round: Future[None] | None = None
        self._failed = ""  #: why the last round failed
        self._last = ""  #: how the last query was answered
        self._may_load = True  #: whether the policy's rules admit further copies, as of the last cycle
        self._closed = False

    def __repr__(self) -> str:
        return "; ".join(self.text()) or "no slices"

    @property
    def rules(self) -> SliceRules | None:
        """The rules of the policy that decides; None: no copies are kept."""
        policy = self._session.controller.policy
        return policy.slices if isinstance(policy, SlicingPolicy) else None

    @property
    def keeps(self) -> bool:
        """Whether closed slices stay in memory once a query has read them."""
        return self.rules is not None and self._may_load

    def text(self) -> list[str]:
        """Return what each task manager keeps, and how the last query was answered, a line each."""
        with self._lock:
            holders, slices = list(self._state.holders.values()), len(self._state.seen)
        lines = []
        kept = [
            f"{each.manager.id} {copies_told(len(each.copies))} ({sum(each.bytes.values()) / 1e6:.2f} MB)"
            for each in holders
            if each.copies
        ]
        if kept:
            copies = copies_told(sum(len(each.copies) for each in holders))
            lines.append(f"results in memory: {', '.join(kept)}; {copies} of {counted(slices, 'slice')} in all")
        if self._last:
            lines.append(f"last qod.query: {self._last}")
        if self._failed:
            lines.append(f"copies of slices are not up to date: {self._failed}")
        return lines

    def kept(self) -> tuple[Kept, ...]:
        """Return the slices with copies, oldest first, as the last round knows them: it asks nobody."""
        with self._lock:
            holders = {each.manager.id: each for each in self._state.holders.values()}
            slices = [each.slice for each in self._state.seen.values()]
        found = []
        for each in sorted(slices, key=lambda each: each.files[0].written_ns):
            sizes = {name: holder.bytes.get(each.id) for name, holder in holders.items() if each.id in holder.copies}
            if sizes:
                found.append(Kept(each.query, each.files[0].written_ns / 1e9, sizes))
        return tuple(found)

    def figures(self) -> Mapping[str, tuple[int, int]]:
        """Return the copies of each task manager, and their bytes in memory as Spark tells now."""
        with self._lock:
            holders = list(self._state.holders.values())
        found = {}
        for each in holders:
            there = each.look()
            found[each.manager.id] = (len(there), sum(each.bytes.get(id, 0) for id in there))
        return found

    # -- a query -------------------------------------------------------------------------------------------------------

    def query(self, sql: str, args: Mapping[str, Any], spark: SparkSession) -> DataFrame:
        """Return the result of a query over results, on the notebook's session: see `session.Session.query`."""
        tables = self._tables(sql)
        rules, now = self.rules, datetime.now(UTC)
        slice_s = SLICE_S if rules is None else rules.slice_s
        found = {
            table.name: sliced(table.name, table.schema.json(), committed(table.path), slice_s, now.timestamp())
            for table in tables.values()
        }
        for name, slices in found.items():
            self._forget_stale(name, slices)
        prepared: Prepared | str = "it does not read one query alone"
        settings = settings_of(spark)
        if len(tables) == 1:
            ((written, table),) = tables.items()
            prepared = self._prepare(sql, args, written, table, spark, settings)
        if isinstance(prepared, str):
            self._last = f"answered by one task manager from all files, as {prepared}"
            return whole(spark, sql, args, tables, found)
        args = {**args, NOW: now}
        wanted = self._pruned(found[table.name], prepared.split.bounds, table, args, spark)
        results = self._parts(table, wanted, prepared, args, settings, self.keeps)
        if rules is None:
            self._last += "; no copies are kept (%qod policy getafix keeps those of hot slices)"
        return merged(spark, prepared, results, args)

    def _tables(self, sql: str) -> dict[str, Table]:
        """Return the queries that an SQL text reads, by their names there."""
        application, deployment = self._session.application, self._session.runtime.deployment
        queries = {name.casefold(): name for name in application.queries}
        found = {}
        for written in tables_read(sql):
            name = queries.get(written.casefold())
            if name is None:
                continue
            sink = application[name].effective_sink
            if not isinstance(sink, Parquet) or is_url(sink.path):
                raise ApplicationError(
                    f"qod.query must read a query that writes Parquet files on this machine, got {name}, which writes "
                    f"to {sink}; declare it with --sink parquet:PATH",
                    name=name,
                    rule="sink",
                )
            schema = deployment.checked.schemas.get(name)
            if schema is None:
                raise TaskManagerError(f"{name} does not run yet.", name=name)
            found[written] = Table(name, sink.path, nullable(schema))
        if not found:
            raise ApplicationError(
                f"qod.query must read a query of this session, got {', '.join(tables_read(sql)) or 'no table'}; "
                "qod.spark.sql reads all else",
                rule="query",
            )
        return found

    def _prepare(
        self,
        sql: str,
        args: Mapping[str, Any],
        written: str,
        table: Table,
        spark: SparkSession,
        settings: Mapping[str, str],
    ) -> Prepared | str:
        """Return how a text is split, or why it is not. Raises UsageProblem, one line: Spark refuses it."""
        for name, fine in UNDERSTOOD.items():
            if settings.get(name, fine).casefold() != fine.casefold():
                return f"{name} is {settings[name]}"
        kinds = sorted((name, kind(value)) for name, value in args.items())
        key = (sql, f"{table.name} {table.schema.json()} {kinds} {sorted(settings.items())}")
        with self._lock:
            made = self._prepared.get(key)
        if made is None:
            made = prepared_for(sql, args, written, table, spark)
            with self._lock:
                while len(self._prepared) >= _MOST_TEXTS:
                    self._prepared.pop(next(iter(self._prepared)))
                self._prepared[key] = made
        return made

    def _pruned(
        self,
        slices: Sequence[Slice],
        bounds: Sequence[Bound],
        table: Table,
        args: Mapping[str, Any],
        spark: SparkSession,
    ) -> Sequence[Slice]:
        """Return the slices that may hold rows of the result."""
        known = [each for each in bounds if each.column in table.times]
        if not known:
            return slices
        with self._lock:
            ranges = dict(self._state.ranges.get(table.name, {}))
        ranges |= self._learn(table, [each for each in slices if each.closed and each.id not in ranges])
        asked = ", ".join(f"unix_micros(CAST({each.value} AS TIMESTAMP_LTZ))" for each in known)
        (values,) = spark.sql(f"SELECT {asked}", args=used(asked, args)).collect()
        limits = [Limit(each.column, each.operator, value) for each, value in zip(known, values, strict=True)]
        return [each for each in slices if may_hold(ranges.get(each.id, {}), limits)]

    def _learn(self, table: Table, slices: Sequence[Slice]) -> dict[str, Ranges]:
        """Read and return the ranges of the times of slices, by id."""

        def ranges(holder: Holder, mine: Sequence[Slice]) -> dict[str, Ranges]:
            times = table.times
            columns = [_MICROS.format(of, text) for text in times.values() for of in ("min", "max")]
            with holder.views(mine, table.schema, False):
                rows = holder.spark.sql(
                    union([f"SELECT '{each.id}', {', '.join(columns)} FROM {each.view}" for each in mine])
                ).collect()
            return {
                row[0]: {
                    name: None if row[1 + 2 * i] is None else (row[1 + 2 * i], row[2 + 2 * i])
                    for i, name in enumerate(times)
                }
                for row in rows
            }

        read: dict[str, Ranges] = {}
        for found in self._each(slices, ranges):
            read.update(found)
        with self._lock:
            self._state.ranges.setdefault(table.name, {}).update(read)
        return read

    def _parts(
        self,
        table: Table,
        slices: Sequence[Slice],
        prepared: Prepared,
        args: Mapping[str, Any],
        settings: Mapping[str, str],
        keep: bool,
    ) -> list[pa.Table]:
        """Return the results of all parts, and note how long slices were used."""
        asked_at = time.monotonic()
        with self._lock:
            for each in slices:
                seen = self._state.seen.setdefault(each.id, _Seen(each, table.schema, asked_at))
                seen.asked_at = asked_at
                seen.accesses += 1

        def part(holder: Holder, mine: Sequence[Slice]) -> pa.Table:
            began = time.monotonic_ns()
            holder.adopt(settings)
            with holder.views(mine, table.schema, keep) as rows:
                text = prepared.split.part.replace(ROWS, f"({rows})")
                found = holder.spark.sql(text, args=used(text, args)).toArrow()
            took, size = time.monotonic_ns() - began, sum(each.size for each in mine)
            with self._lock:
                for each in mine:
                    if each.id in self._state.seen:
                        self._state.seen[each.id].busy_ns += took * each.size // max(size, 1)
            return found

        where = Counter[str]()
        results = list(self._each(slices, part, where))
        of = ", ".join(f"{name} {count}" for name, count in where.items())
        self._last = f"{counted(len(slices), 'slice')} of {table.name}" + (f", answered by {of}" if of else "")
        return results

    def _each(
        self,
        slices: Sequence[Slice],
        call: Callable[[Holder, Sequence[Slice]], Any],
        where: Counter[str] | None = None,
    ) -> Iterable[Any]:
        """Make a call for the slices of each task manager, at the same time. Where one is lost, another takes its
        slices."""
        results, left = [], list(slices)
        lost: set[str] = set()
        while left:
            assigned = self._assigned(left, lost)
            left = []
            calls = {name: begin(partial(call, holder, mine), name) for name, (holder, mine) in assigned.items()}
            try:
                while not all(each.done() for each in calls.values()):
                    wait(calls.values(), SIGNALS_S)
            except BaseException:  # Ctrl-C: nothing goes on
                for holder, _ in assigned.values():
                    with suppress(Exception):
                        holder.spark.interruptAll()
                raise
            for name, (holder, mine) in assigned.items():
                error = calls[name].exception()
                if error is None:
                    results.append(calls[name].result())
                    if where is not None:
                        where[name] += len(mine)
                elif holder.manager.alive() and any(each is holder.manager for each in self._managers()):
                    raise TaskManagerError(f"{name}: {reason(error)}", name=name) from error
                else:
                    lost.add(name)
                    left += mine
        return results

    def _managers(self) -> Sequence[TaskManager]:
        return self._session.runtime.cluster.answering()

    def _assigned(self, slices: Sequence[Slice], lost: set[str]) -> dict[str, tuple[Holder, list[Slice]]]:
        """Return the slices that each task manager reads: those of which it has a copy by the shares of the last round,
        others where least is read."""
        holders = {name: holder for name, holder in self._holders().items() if name not in lost}
        if not holders:
            raise TaskManagerError("No task manager is up: `%qod up` starts one, `%qod add-tm` adds one.")
        found: dict[str, tuple[Holder, list[Slice]]] = {}
        load = dict.fromkeys(holders, 0)
        with self._lock:
            for each in sorted(slices, key=lambda each: -each.size):
                there = [name for name, holder in holders.items() if each.id in holder.copies]
                router = self._state.routers.get(each.id)
                name = router.route() if router is not None else ""
                if name not in there:
                    name = min(there or load, key=lambda each: (load[each], len(holders[each].copies)))
                load[name] += each.size
                found.setdefault(name, (holders[name], []))[1].append(each)
        return found

    def _holders(self) -> Mapping[str, Holder]:
        """Return those of the task managers that answer, made on first use; the copies of others are forgotten."""
        managers = {each.id: each for each in self._managers()}
        with self._making:  # without the other lock, as a session takes a while
            made, failed = {}, list[Exception]()
            for id, manager in managers.items():
                if id not in self._state.holders:
                    try:
                        made[id] = Holder(manager)
                    except Exception as error:  # the others answer
                        failed.append(error)
            with self._lock:
                there = self._state.holders
                there.update(made)
                gone = [there.pop(id) for id in list(there) if managers.get(id) is not there[id].manager]
                found = {} if self._closed else dict(there)
        if failed and not found:
            raise TaskManagerError(f"No task manager answers: {reason(failed[0])}") from failed[0]
        for each in gone:
            if each.manager.alive():
                begin(each.close, f"{each.manager.id}: releasing slices")
        return found

    def _forget_stale(self, query: str, slices: Sequence[Slice]) -> None:
        """Forget the slices of a query whose files or columns are others by now: the next round drops their copies."""
        current = {each.id for each in slices}
        with self._lock:
            for id, seen in list(self._state.seen.items()):
                if seen.slice.query == query and id not in current:
                    del self._state.seen[id]
            ranges = self._state.ranges.get(query, {})
            for id in ranges.keys() - current:
                del ranges[id]

    # -- a round -------------------------------------------------------------------------------------------------------

    def cycle(self, cycle: Cycle) -> None:
        """Begin a round, if the last one is over and plans are applied."""
        if self._closed or self._session.controller.paused or (self._round is not None and not self._round.done()):
            return
        rules = self.rules
        if rules is not None and cycle.snapshot is not None and cycle.plan is not None:
            self._may_load = rules.may_load(cycle.snapshot, cycle.plan)
        with self._lock:
            idle = not self._state.holders and not self._state.seen
        if not idle:
            self._round = begin(self._safely, "slices")

    def _safely(self) -> None:
        try:
            self._decide()
            self._failed = ""
        except Exception as error:
            if not self._closed:
                self._failed = reason(error)
                LOG.warning("a round of slices failed: %s", self._failed)

    def _decide(self) -> None:
        """Have the policy decide which task managers keep which slices, then load, then drop."""
        policy, rules = self._session.controller.policy, self.rules
        if policy is not self._policy:
            self._policy, self._memory = policy, None
        if rules is None and not any(each.copies for each in list(self._state.holders.values())):
            return
        holders = self._holders()
        held = {name: holder.look() for name, holder in holders.items()}
        seen = self._segments(rules)
        if rules is None or not seen or not holders:
            with self._lock:
                self._state.routers = {}
            for holder in holders.values():
                for id in list(holder.copies):
                    holder.drop(id)
            return
        size = {
            id: max(each.slice.size, *(holder.bytes.get(id, 0) for holder in holders.values()))
            for id, each in seen.items()
        }
        memory = {name: told for name, holder in holders.items() if (told := holder.memory()) is not None}
        observation = Observation(
            segments=tuple(seen),
            nodes=tuple(holders),
            held=held,
            use={id: Use(each.accesses, each.busy_ns, min(each.accesses, 1)) for id, each in seen.items()},
            size=size,
            weight={name: max(1, round(holder.manager.capacity)) for name, holder in holders.items()},
            memory=memory,
        )
        result, self._memory = rules.replication.decide(observation, self._memory)
        loads: dict[str, list[Slice]] = {}
        if not self._may_load:
            result = result.without_loads()
        for name, id in result.loads:
            loads.setdefault(name, []).append(seen[id].slice)
        for name, slices in loads.items():
            for each in slices:
                if not self._closed:
                    holders[name].load([each], seen[each.id].schema)
        with self._lock:
            self._state.routers = {id: rules.router(shares) for id, shares in result.routing.items()}
        for name, id in result.drops:
            holders[name].drop(id)
        for holder in holders.values():  # copies that Spark has evicted, of slices that nobody asks for
            for id in [id for id in holder.copies if id not in seen]:
                holder.drop(id)
            holder.look()

    def _segments(self, rules: SliceRules | None) -> dict[str, _Seen]:
        """Return the closed slices that were asked for, with their use since the last round, oldest first."""
        now = time.monotonic()
        with self._lock:
            if rules is not None:
                for id, each in list(self._state.seen.items()):
                    if now - each.asked_at > rules.forget_s:
                        del self._state.seen[id]
            closed = {id: each for id, each in self._state.seen.items() if each.slice.closed}
            found = {
                id: _Seen(each.slice, each.schema, each.asked_at, each.accesses, each.busy_ns)
                for id, each in sorted(closed.items(), key=lambda item: item[1].slice.files[0].written_ns)
            }
            for each in self._state.seen.values():
                each.accesses = each.busy_ns = 0
        return found

    def close(self) -> None:
        """Release all copies."""
        with self._lock:
            self._closed = True
            holders, self._state.holders = list(self._state.holders.values()), {}
        for each in holders:
            if each.manager.alive():
                with suppress(Exception):
                    begin(each.close, f"{each.manager.id}: releasing slices").result(2.0)
