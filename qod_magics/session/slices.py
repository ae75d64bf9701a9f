"""Queries over the results of a query: split by time slice, answered where task managers keep copies, and merged.

A slice is some of the files that a query has written (`results.slices`). A copy of it is a cached view in a session of
ours on a task manager. `Slices` reads and keeps them; a policy with rules for slices (`core.policy.SlicingPolicy`) says
once a cycle which task managers load and drop which. Under other policies files are read each time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from qod_magics.application.sql.functions import BUILT_IN, called
from qod_magics.application.sql.names import formatted, tables_read
from qod_magics.application.sql.splitting import (
    NOW,
    PARTS,
    ROWS,
    Bound,
    NotSplit,
    Split,
    as_parsed,
    split,
)
from qod_magics.application.streams.sink import Parquet, is_url
from qod_magics.core.engines import Observation, Use
from qod_magics.core.policy import Router, SliceRules, SlicingPolicy
from qod_magics.errors import ApplicationError, TaskManagerError, UsageProblem, counted
from qod_magics.results.slices import VIEW, Limit, Ranges, Slice, committed, may_hold, sliced
from qod_magics.spark.servers.connection import SIGNALS_S, begin, call_within, reason
from qod_magics.spark.servers.cpu import adopt, block_memory, kept_tables, setting
from qod_magics.spark.servers.joining import release
from qod_magics.spark.servers.task_manager import INQUIRY_S

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
_TIMESTAMPS = "spark.sql.timestampType"
#: With these, a text means something else here than there, or than the parser takes it for; by setting, what is fine.
_UNDERSTOOD = {_TIMESTAMPS: "TIMESTAMP_LTZ", "spark.sql.functionResolution.sessionOrder": "second"}
#: Settings on which the result of a query depends: those of the notebook's session hold.
_SETTINGS = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive", _TIMESTAMPS)
#: How names of further ones begin, where they are set.
_MEANINGS = tuple(
    f"spark.sql.{each}"
    for each in (
        *("ansi.", "legacy.", "session.", "decimalOperations.", "mapKeyDedupPolicy", "parser.", "parquet."),
        *("groupBy", "orderByOrdinal", "collation.", "json", "csv", "functionResolution."),
    )
)
#: Of our sessions: files are listed without a job.
_CONF = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000"}
#: Texts whose split is kept.
_MOST_TEXTS = 200
_MICROS = "unix_micros({}({}))"
#: The package of Spark's own functions.
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
#: What Hadoop takes for a pattern in a path.
_PATTERN = str.maketrans({each: f"\\{each}" for each in "{}[]*?\\"})


@dataclass(frozen=True, slots=True)
class Table:
    """The results of a query."""

    name: str
    path: str  #: of its sink
    schema: StructType

    @property
    def times(self) -> Mapping[str, str]:
        """SQL of each column of timestamps, or field of a struct at its top, by name in lower case."""
        found = {}
        for each in self.schema.fields:
            if each.dataType.typeName() == "timestamp":
                found[each.name.casefold()] = _quoted(each.name)
            for inner in getattr(each.dataType, "fields", ()):
                if inner.dataType.typeName() == "timestamp":
                    found[f"{each.name}.{inner.name}".casefold()] = f"{_quoted(each.name)}.{_quoted(inner.name)}"
        return found


@dataclass(frozen=True, slots=True)
class Prepared:
    """A query as it is answered in parts."""

    split: Split
    types: Mapping[str, str]  #: of the columns of a part, by name
    part: StructType
    result: StructType


# --- Copies on one task manager ---------------------------------------------------------------------------------------


class Holder:
    """The slices that a task manager keeps, as cached views of a session of ours. Thread-safe."""

    def __init__(self, manager: TaskManager) -> None:
        self.manager = manager
        self.spark: SparkSession = call_within(manager.for_batch, INQUIRY_S, f"{manager.id}: a session for slices")
        adopt(self.spark, _CONF)
        self.copies: set[str] = set()  #: ids of cached slices
        self.bytes: dict[str, int] = {}  #: in memory, as Spark told last
        self._views: set[str] = set()  #: ids of slices that have one
        self._settings: Mapping[str, str] = {}
        self._claims: Counter[str] = Counter()  #: queries that read a view, by id of its slice
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{self.manager.id}: {_copies(len(self.copies))}"

    @contextmanager
    def views(self, slices: Sequence[Slice], schema: StructType, keep: bool) -> Iterator[str]:
        """SQL that reads slices, whose views are there meanwhile. `keep`: whether closed ones stay in memory from their
        first reading on."""
        with self._lock:
            self._claims.update(each.id for each in slices)
        try:
            with self._lock:
                for each in slices:
                    if each.id not in self.copies and each.id not in self._views:
                        self._view(each, schema)
                    if keep and each.closed and each.id not in self.copies:
                        self.spark.catalog.cacheTable(each.view)
                        self.copies.add(each.id)
            yield _union([f"SELECT * FROM {each.view}" for each in slices])
        finally:
            with self._lock:
                for each in slices:
                    self._claims[each.id] -= 1
                    if not self._claims[each.id] and each.id not in self.copies:
                        self._views.discard(each.id)
                        with suppress(Exception):
                            self.spark.catalog.dropTempView(each.view)

    def _view(self, each: Slice, schema: StructType) -> None:
        paths = [file.path.translate(_PATTERN) for file in each.files]
        self.spark.read.schema(schema).parquet(*paths).coalesce(1).createOrReplaceTempView(each.view)
        self._views.add(each.id)

    def adopt(self, settings: Mapping[str, str]) -> None:
        """Give its session these settings."""
        with self._lock:
            if settings != self._settings:
                for key in self._settings.keys() - settings.keys():
                    with suppress(Exception):  # as `adopt` does with what a server refuses
                        self.spark.conf.unset(key)
                adopt(self.spark, settings)
                self._settings = settings

    def load(self, slices: Sequence[Slice], schema: StructType) -> None:
        """Read slices into memory, also those that Spark has evicted."""
        with self.views(slices, schema, True):
            for each in slices:
                self.spark.sql(f"SELECT count(*) FROM {each.view}").collect()

    def drop(self, id: str) -> bool:
        """Release a copy, unless a query reads it. Returns whether it is gone."""
        with self._lock:
            if self._claims[id]:
                return False
            self.copies.discard(id)
            self._views.discard(id)
            self.bytes.pop(id, None)
            self.spark.catalog.uncacheTable(f"{VIEW}{id}")
            self.spark.catalog.dropTempView(f"{VIEW}{id}")
            return True

    def look(self) -> frozenset[str]:
        """Ask Spark which copies are in memory, and how large they are; return them. Where its UI does not answer,
        those that were loaded."""
        manager, there = self.manager, frozenset(self.copies)
        if manager.ui is None or manager.application is None:
            return there
        try:
            kept = kept_tables(manager.ui, manager.application, headers=manager.headers)
        except (OSError, ValueError):
            return there
        by_id = {each.name.partition(VIEW)[2][:16]: each for each in kept if VIEW in each.name}
        self.bytes = {id: by_id[id].bytes for id in there if id in by_id}
        return frozenset(id for id in there if id in by_id and by_id[id].whole)

    def memory(self) -> int | None:
        """Return its memory for blocks, bytes; None: not known."""
        manager = self.manager
        if manager.ui is None or manager.application is None:
            return None
        with suppress(OSError, ValueError):
            return block_memory(manager.ui, manager.application, headers=manager.headers)
        return None

    def close(self) -> None:
        """Release the session with all copies."""
        with suppress(Exception):
            for id in list(self.copies):
                self.drop(id)
        release(self.spark)


# --- Queries and rounds -----------------------------------------------------------------------------------------------


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
        self._closed = False

    def __repr__(self) -> str:
        return "; ".join(self.text()) or "no slices"

    @property
    def rules(self) -> SliceRules | None:
        """The rules of the policy that decides; None: no copies are kept."""
        policy = self._session.controller.policy
        return policy.slices if isinstance(policy, SlicingPolicy) else None

    def text(self) -> list[str]:
        """Return what each task manager keeps, and how the last query was answered, a line each."""
        with self._lock:
            holders, slices = list(self._state.holders.values()), len(self._state.seen)
        lines = []
        kept = [
            f"{each.manager.id} {_copies(len(each.copies))} ({sum(each.bytes.values()) / 1e6:.2f} MB)"
            for each in holders
            if each.copies
        ]
        if kept:
            copies = _copies(sum(len(each.copies) for each in holders))
            lines.append(f"results in memory: {', '.join(kept)}; {copies} of {counted(slices, 'slice')} in all")
        if self._last:
            lines.append(f"last qod.query: {self._last}")
        if self._failed:
            lines.append(f"copies of slices are not up to date: {self._failed}")
        return lines

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
        try:
            tables = self._tables(sql)
        except ApplicationError as error:  # without the advice of a cell
            raise ApplicationError(
                str(error).partition(" If Spark does take it")[0], name=error.name, rule=error.rule
            ) from None
        rules, now = self.rules, datetime.now(UTC)
        slice_s = SLICE_S if rules is None else rules.slice_s
        found = {
            table.name: sliced(table.name, table.schema.json(), committed(table.path), slice_s, now.timestamp())
            for table in tables.values()
        }
        for name, slices in found.items():
            self._forget_stale(name, slices)
        prepared: Prepared | str = "it does not read one query alone"
        settings = _settings(spark)
        if len(tables) == 1:
            ((written, table),) = tables.items()
            prepared = self._prepare(sql, args, written, table, spark, settings)
        if isinstance(prepared, str):
            self._last = f"answered by one task manager from all files, as {prepared}"
            return _whole(spark, sql, args, tables, found)
        args = {**args, NOW: now}
        wanted = self._pruned(found[table.name], prepared.split.bounds, table, args, spark)
        results = self._parts(table, wanted, prepared, args, settings, rules is not None)
        if rules is None:
            self._last += "; no copies are kept (%qod policy getafix keeps those of hot slices)"
        return _merged(spark, prepared, results, args)

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
            found[written] = Table(name, sink.path, _nullable(schema))
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
        for name, fine in _UNDERSTOOD.items():
            if settings.get(name, fine).casefold() != fine.casefold():
                return f"{name} is {settings[name]}"
        kinds = sorted((name, kind(value)) for name, value in args.items())
        key = (sql, f"{table.name} {table.schema.json()} {kinds} {sorted(settings.items())}")
        if key not in self._prepared:
            made = _prepared(sql, args, written, table, spark)
            while len(self._prepared) >= _MOST_TEXTS:
                self._prepared.pop(next(iter(self._prepared)))
            self._prepared[key] = made
        return self._prepared[key]

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
        (values,) = spark.sql(f"SELECT {asked}", args=_used(asked, args)).collect()
        limits = [Limit(each.column, each.operator, value) for each, value in zip(known, values, strict=True)]
        return [each for each in slices if may_hold(ranges.get(each.id, {}), limits)]

    def _learn(self, table: Table, slices: Sequence[Slice]) -> dict[str, Ranges]:
        """Read and return the ranges of the times of slices, by id."""

        def ranges(holder: Holder, mine: Sequence[Slice]) -> dict[str, Ranges]:
            times = table.times
            columns = [_MICROS.format(of, text) for text in times.values() for of in ("min", "max")]
            with holder.views(mine, table.schema, False):
                rows = holder.spark.sql(
                    _union([f"SELECT '{each.id}', {', '.join(columns)} FROM {each.view}" for each in mine])
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
                found = holder.spark.sql(text, args=_used(text, args)).toArrow()
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


def _copies(number: int) -> str:
    return "1 copy" if number == 1 else f"{number} copies"


# --- What Spark is asked ----------------------------------------------------------------------------------------------


def _nullable(schema: StructType) -> StructType:
    """Return the columns as files have them: any may be null."""
    return type(schema)([type(each)(each.name, each.dataType, True) for each in schema.fields])


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))


def _union(texts: Sequence[str]) -> str:
    return " UNION ALL ".join(texts)


def _used(text: str, args: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the parameters that a text may use."""
    return {name: value for name, value in args.items() if f":{name}" in text} or None


def _files(spark: SparkSession, slices: Sequence[Slice], schema: StructType) -> DataFrame:
    paths = [file.path.translate(_PATTERN) for each in slices for file in each.files]
    return spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)


def _over(spark: SparkSession, text: str, mark: str, rows: DataFrame, args: Mapping[str, Any]) -> DataFrame:
    """Return the result of a text over rows that `mark` stands for there."""
    escaped = text.replace("{", "{{").replace("}", "}}").replace(mark, "{qod_rows}")
    return spark.sql(escaped, args=_used(text, args), qod_rows=rows)


def _whole(
    spark: SparkSession,
    sql: str,
    args: Mapping[str, Any],
    tables: Mapping[str, Table],
    found: Mapping[str, Sequence[Slice]],
) -> DataFrame:
    """Return the result of a text over all files of these tables."""
    frames = {f"qod_{i}": _files(spark, found[each.name], each.schema) for i, each in enumerate(tables.values())}
    text = formatted(sql, dict(zip(tables, frames, strict=True)))
    return _accepted(lambda: spark.sql(text, args=_used(text, args), **frames))


def _prepared(sql: str, args: Mapping[str, Any], written: str, table: Table, spark: SparkSession) -> Prepared | str:
    """Return how a text is split, or why it is not. Raises UsageProblem: Spark refuses it."""
    from pyspark.errors import AnalysisException, ParseException

    empty = _nulls(spark, table.schema)
    text = formatted(sql, {written: "qod_rows"})
    result = _accepted(lambda: spark.sql(text, args=_used(text, args), qod_rows=empty).schema)
    try:
        found = split(sql, written, table.schema.names)
    except NotSplit as why:
        return str(why)
    if replaced := [name for name in sorted(called(sql) - BUILT_IN) if not _is_of_spark(name, spark)]:
        return f"{replaced[0]} is not Spark's own function in this session"
    try:
        return _checked(found, sql, args, written, result, empty, spark)
    except (AnalysisException, ParseException) as error:
        return f"Spark does not take a part of it: {reason(error)}"


def _checked(
    found: Split,
    sql: str,
    args: Mapping[str, Any],
    written: str,
    result: StructType,
    empty: DataFrame,
    spark: SparkSession,
) -> Prepared | str:
    """Return how a text is split, or why Spark tells that it is not."""
    if len(result.fields) != found.columns:
        return "a function makes several columns of its result"
    text = formatted(as_parsed(sql), {written: "qod_rows"})
    expected = spark.sql(text, args=_used(text, args), qod_rows=empty)
    if not expected.sameSemantics(_over(spark, found.whole, ROWS, empty, args)):
        return "Spark reads it otherwise than the parser here"
    probed = _over(spark, found.probe, ROWS, empty, {**args, NOW: datetime.now(UTC)}).schema
    if any(each.name.startswith("_a") and each.dataType.typeName() != "double" for each in probed.fields):
        return "averages of decimals and intervals do not split"
    part = type(probed)([each for each in probed.fields if not each.name.startswith("_a")])
    return Prepared(found, {each.name: each.dataType.simpleString() for each in part.fields}, part, result)


def _merged(spark: SparkSession, prepared: Prepared, results: Sequence[pa.Table], args: Mapping[str, Any]) -> DataFrame:
    """Return the merge of the results of all parts, with the names and types of the whole."""
    import pyarrow as pa

    rows: Any = pa.concat_tables(results, promote_options="default") if results else []
    parts = spark.createDataFrame(rows, schema=prepared.part)
    merged = _over(spark, prepared.split.merge(prepared.types), PARTS, parts, args)
    return merged.select(
        *(merged[f"_{i}"].cast(each.dataType).alias(each.name) for i, each in enumerate(prepared.result.fields))
    )


def _settings(spark: SparkSession) -> dict[str, str]:
    """Return the settings of a session on which the result of a query depends."""
    found = {key: value for key in _SETTINGS if (value := setting(spark, key)) is not None}
    return found | {key: value for key, value in spark.conf.getAll.items() if key.startswith(_MEANINGS)}


def kind(value: object) -> str:
    """Return what tells the type that Spark gives a parameter: its class, and all of it where the value counts."""
    if isinstance(value, bool | str | float | bytes | datetime | date):
        zone = getattr(value, "tzinfo", None)
        return f"{type(value).__name__} {zone is not None}"
    if isinstance(value, int):
        return f"int {-(2**31) <= value < 2**31}"  # INT or BIGINT
    return f"{type(value).__name__} {value!r}"


def _is_of_spark(name: str, spark: SparkSession) -> bool:
    """Return whether a function of this name is Spark's own in a session."""
    with suppress(Exception):  # there is none of this name
        lines = [row[0] for row in spark.sql(f"DESCRIBE FUNCTION {_quoted(name)}").collect()]
        return any(line.startswith(f"Class: {_EXPRESSIONS}") for line in lines)
    return False


def _nulls(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return a row of nulls, to analyse queries over these columns."""
    from pyspark.sql import functions as F

    return spark.sql("SELECT 1").select(*(F.lit(None).cast(each.dataType).alias(each.name) for each in schema.fields))


def _accepted(call: Callable[[], Any]) -> Any:
    """Return what Spark answers. Raises UsageProblem, one line: it refuses the query."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        return call()
    except (AnalysisException, ParseException) as error:
        raise UsageProblem(f"qod.query must be a query that Spark takes: {reason(error)}", rule="query") from error
