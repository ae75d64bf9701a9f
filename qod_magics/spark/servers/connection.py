"""Spark Connect sessions. A process can have these or a classic session, depending on the mode of pyspark."""

from __future__ import annotations

import copy
import logging
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

from qod_magics.errors import TaskManagerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# --- Reasons of errors ------------------------------------------------------------------------------------------------

LOG = logging.getLogger(__name__)

#: Maximum length of the line, characters.
MOST = 400

_DETAILS = re.compile(r'^\s*details = "(.*)"$', re.MULTILINE)
_BEFORE_THE_LAST = re.compile(r"^.*last error: (?:UNKNOWN: )?(?:ipv[46]:\S+: )?")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+[.$])?(\w+): (\S.*)$", re.MULTILINE)
#: An error of a function in Python, which stands behind the files and lines that it passed.
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(rf"{re.escape(_TRACEBACK)}\n(?:[ \t].*\n|\n)*(\S.*)")


def reason(error: BaseException) -> str:
    """Return one line of at most `MOST` characters: for a failed connection gRPC's own details, not its object's repr,
    for a failure on a server the message and its root cause, without stack traces of the JVM and of Python.

    The whole error is logged.
    """
    LOG.debug("an error of Spark", exc_info=error)
    text = str(error)
    if text.startswith("<_") and (details := _DETAILS.search(text)):
        text = _BEFORE_THE_LAST.sub("", details[1])
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("JVM stacktrace")]
    found = lines[0] if lines else type(error).__name__
    if found.endswith(_TRACEBACK) and (raised := _RAISED.search(text)):
        return f"{found.removesuffix(_TRACEBACK)}{raised[1]}"[:MOST]
    causes = _CAUSE.findall(text)
    if causes and causes[-1][1] not in found:
        kind, message = causes[-1]
        found = f"{found[: MOST // 2]} ({kind}: {message})"
    return found[:MOST]


# --- Timeouts ---------------------------------------------------------------------------------------------------------

T = TypeVar("T")


#: For how long a thread waits for its next call, seconds.
IDLE_S = 10.0
#: Interval at which a waiting thread looks at signals, seconds: one that arrives just before it begins to wait does not
#: wake it.
SIGNALS_S = 0.5


_Jobs: TypeAlias = "SimpleQueue[tuple[str, Callable[[], None]]]"


class Callers:
    """Daemon threads, each of which makes one call after the other, and ends after `idle_s` seconds without one."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._idle: list[_Jobs] = []  #: of each thread that waits for its next call
        self._lock = threading.Lock()

    def run(self, job: Callable[[], None], name: str) -> None:
        """Run `job`, which must not raise, on the thread that became idle last, or on a new one."""
        with self._lock:
            jobs = self._idle.pop() if self._idle else None
        if jobs is None:
            jobs = SimpleQueue()
            threading.Thread(target=self._loop, args=(jobs,), name=name, daemon=True).start()
        jobs.put((name, job))

    def _loop(self, jobs: _Jobs) -> None:
        thread = threading.current_thread()
        while True:
            try:
                thread.name, job = jobs.get(timeout=self._idle_s)
            except Empty:
                with self._lock:
                    if jobs in self._idle:
                        self._idle.remove(jobs)
                        return
                continue  # it has been given a job just now
            job()
            del job  # with the result, which the future has
            thread.name = "qod-idle"
            with self._lock:
                self._idle.append(jobs)


_callers = Callers()


def begin(call: Callable[[], T], name: str, callers: Callers = _callers) -> Future[T]:
    """Run `call` on a daemon thread that has nothing else to do: a call that never returns blocks neither caller nor
    exit. Threads are used again, the last one first: each new one could make the C library take another arena, with
    holes of its own (some 13 MiB an hour, with queries that restart)."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    callers.run(run, f"qod-{name}")
    return future


def call_within(call: Callable[[], T], timeout_s: float, what: str) -> T:
    """Return the result of `call`, or TaskManagerError after `timeout_s` seconds."""
    future = begin(call, what)
    try:
        if _ends_by(future, time.monotonic() + timeout_s):
            return future.result()
    except TimeoutError:  # the call's own
        pass
    raise TaskManagerError(f"{what} did not answer within {timeout_s:g} s.", name=what, value=timeout_s, rule="answers")


def _ends_by(future: Future[Any], deadline: float) -> bool:
    """Return whether a call ends by this time of the monotonic clock."""
    while not future.done():
        rest = deadline - time.monotonic()
        if rest <= 0:
            return False
        wait((future,), min(rest, SIGNALS_S))
    return True


def gather(calls: Mapping[str, Callable[[], T]], timeout_s: float) -> dict[str, T | BaseException]:
    """Return the results (or errors) of concurrent calls, with a timeout of `timeout_s` seconds for all of them
    together."""
    futures = {name: begin(call, name) for name, call in calls.items()}
    deadline = time.monotonic() + timeout_s
    results: dict[str, Any] = {}
    for name, future in futures.items():
        if not _ends_by(future, deadline):
            why = f"{name} did not answer within {timeout_s:g} s."
            results[name] = TaskManagerError(why, name=name, value=timeout_s, rule="answers")
        else:
            results[name] = future.exception() or future.result()
    return results


CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
#: Where pyspark's `SparkSession.builder.getOrCreate()` finds a Connect server.
REMOTE = "SPARK_REMOTE"
#: A listening server answers within this, seconds, however busy.
ANSWER_S = 30.0


@dataclass(slots=True)
class Ours:
    """What this module changed in the process: the variables of the environment, and the sessions that need them."""

    open: WeakSet[SparkSession] = field(default_factory=WeakSet)  #: Connect sessions made here
    mode: bool = False  #: whether Connect mode was entered here
    remote: str = ""  #: the value of `REMOTE` that was set here


_ours = Ours()


def connect(
    url: str,
    patience_s: float,
    alive: Callable[[], bool] = lambda: True,
    *,
    reattachable: bool = True,
    dial: str | None = None,
    create: Callable[[str, str | None], SparkSession] | None = None,
) -> SparkSession:
    """Return a new Connect session. Its calls stop retrying within seconds, where the client's default is ten minutes.

    `dial` is the address to dial in place of the URL's host, `127.0.0.1` for a server that binds to that alone,
    whatever the machine takes `localhost` for. No connection to this machine goes through a proxy.

    `reattachable` calls survive a lost connection, and take three messages, and twice the CPU of both sides, where
    others take one. Needed over a network; on the loopback interface a connection is lost with its server.

    `create` makes the session of a URL and an address to dial; by default pyspark does.

    Raises:
        TaskManagerError: no answer within `patience_s` seconds, the server is no longer `alive`, the token is wrong,
            or this process has a classic session: pyspark supports only one kind per process.

    """
    if create is None:
        load_client()
        create = _created
    from pyspark.sql.connect.client.retries import DefaultPolicy

    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")  # the error itself is reported
    try:
        spark = create(url, dial)
    except Exception as error:
        raise TaskManagerError(f"{hidden(url)}: {reason(error)}") from error
    _ours.open.add(spark)
    if not reattachable:
        spark.client.disable_reattachable_execute()
    spark.client.set_retry_policies([DefaultPolicy(max_retries=0)])
    deadline = time.monotonic() + patience_s
    while True:
        try:
            call_within(lambda: spark.sql("SELECT 1").collect(), max(patience_s, ANSWER_S), hidden(url))
            break
        except Exception as error:
            if time.monotonic() >= deadline or not alive() or "UNAUTHENTICATED" in str(error):
                let_go(spark, 0.5)
                raise TaskManagerError(f"{hidden(url)} can't be used: {reason(error)}.{_hint(url, error)}") from error
            time.sleep(0.5)
        except BaseException:  # interrupted: nobody else will
            let_go(spark, 0.5)
            raise
    spark.client.set_retry_policies([DefaultPolicy(max_retries=3, max_backoff=1000)])
    return spark


def _channel(url: str, dial: str | None) -> Any:
    """Return how to reach the server at `url`: see `connect`."""
    from pyspark.sql.connect.client import DefaultChannelBuilder

    class Channel(DefaultChannelBuilder):
        @property
        def endpoint(self) -> str:
            return super().endpoint if dial is None else f"{dial}:{self._port}"

    return Channel(url, [("grpc.enable_http_proxy", 0)] if is_loopback(urlsplit(url).hostname or "") else None)


def is_loopback(host: str) -> bool:
    """Tell whether a host's name or address is this machine's loopback interface."""
    return host == "localhost" or host == "::1" or re.fullmatch(r"127(\.\d+){3}", host) is not None


def beside(spark: SparkSession) -> SparkSession:
    """Open another session on the server of this Connect session, reached in the same way.

    It shares no settings, views or queries with it. Makes no call.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    channel = _same_way(spark.client._builder)
    channel._params.pop("session_id", None)  # of a URL that names one
    other: SparkSession = type(spark)(connection=channel)
    other.client.set_retry_policies([DefaultPolicy(max_retries=3, max_backoff=1000)])
    _ours.open.add(other)
    return other


def _same_way(builder: Any) -> Any:
    """Return a copy of what tells a session how to reach its server. What it asks for tokens, which may change with
    each call, is the same for both: a deep copy would keep the token of now, or fail at a lock."""
    other = copy.copy(builder)
    other._params = dict(builder._params)
    return other


def clone(spark: SparkSession) -> SparkSession:
    """Make a session of our own that begins with the settings, views and functions of the notebook's session, classic
    or Connect, and shares none of them from then on."""
    if is_connect(spark):
        builder = spark.client._builder
        like = _same_way(builder)
        with suppress(AttributeError):  # pyspark makes a deep copy
            builder.__deepcopy__ = lambda _: like
        try:
            other = spark.cloneSession()
        finally:
            with suppress(AttributeError):
                del builder.__deepcopy__
        _ours.open.add(other)
        return other
    return type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())


def share_views(source: SparkSession, target: SparkSession) -> None:
    """Give a clone of a classic session the temporary views that the session has by now. Those of a Connect session
    are known to its server alone."""
    if source is target or is_connect(source):
        return
    views, copies = (each._jsparkSession.sessionState().catalog() for each in (source, target))
    names = views.listLocalTempViews("*")
    for name in [names.apply(i).table() for i in range(names.size())]:
        view = views.getRawTempView(name)
        if view.isDefined():  # it may have been dropped since
            copies.createTempView(name, view.get(), True)


def is_connect(spark: SparkSession) -> bool:
    """Tell whether it is a Connect session, not a classic one."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def offer(spark: SparkSession) -> None:
    """Make `SparkSession.builder.getOrCreate()` return this Connect session while it is open, where it would return
    another one of ours or fail."""
    sessions: Any = type(spark)
    default = sessions._default_session
    if default is None or default in _ours.open:
        sessions._default_session = spark
    if os.environ.get(REMOTE, "") == _ours.remote:
        address: str = spark.client._builder.url.geturl()
        os.environ[REMOTE] = _ours.remote = f"sc{address.removeprefix('http')}"


def is_ours(url: str) -> bool:
    """Tell whether it is the address that `offer` has written into the environment."""
    return bool(_ours.remote) and url == _ours.remote


def load_client() -> None:
    """Import the Connect client, which takes a second: best done while a server starts.

    Raises:
        TaskManagerError: this process has a classic session.

    """
    refuse_beside_classic()
    if CONNECT_MODE not in os.environ:
        os.environ[CONNECT_MODE] = "1"
        _ours.mode = True
    import pyspark.sql.connect.session  # noqa: F401


def leave_connect_mode() -> None:
    """Allow classic sessions again, once no Connect session made here is open."""
    if _ours.mode and not _ours.open:
        _ours.mode = False
        os.environ.pop(CONNECT_MODE, None)
    if _ours.remote and not _ours.open:
        if os.environ.get(REMOTE) == _ours.remote:
            del os.environ[REMOTE]
        _ours.remote = ""


def _created(url: str, dial: str | None) -> SparkSession:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    # on its own thread, whose active session it becomes: the notebook's thread would keep it for ever
    found: SparkSession = begin(
        ConnectSession.builder.channelBuilder(_channel(url, dial)).create, "connecting"
    ).result()
    return found


def let_go(spark: SparkSession, timeout_s: float) -> None:
    """Release a Connect session on its server, with a timeout; then close the connection, which ends hanging calls.

    `spark.stop` alone would do both under a lock shared by all sessions, which a hung server would block.
    """
    _ours.open.discard(spark)
    with suppress(Exception):
        begin(spark.client.release_session, "releasing").result(timeout_s)
    spark.release_session_on_close = False
    with suppress(Exception):
        begin(spark.stop, "closing").result(2.0)


def refuse_beside_classic() -> None:
    """Raise TaskManagerError where this process has a classic session."""
    module = sys.modules.get("pyspark.core.context")
    context = module.SparkContext._active_spark_context if module is not None else None
    if context is not None and CONNECT_MODE not in os.environ:
        raise TaskManagerError(
            f"This kernel has a classic Spark session ({context.master}), and a Connect task manager would break it: "
            "use it with %qod attach, or stop it (spark.stop()) first."
        )


def _hint(url: str, error: BaseException) -> str:
    text = str(error)
    if "UNAUTHENTICATED" in text:
        return " Give its token: sc://HOST:PORT/;token=TOKEN"
    if "refused" not in text and "token=" in url and re.match(r"sc://(127\.|\[::1\])", url):
        return " With a token, an IP address requires TLS: write localhost."
    return " Is the server running, and is it a Spark Connect server?"


def hidden(url: str) -> str:
    """Return the URL without its token."""
    return re.sub(r"token=[^;]*", "token=...", url)
