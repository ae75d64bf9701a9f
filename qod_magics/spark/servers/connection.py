"""Spark Connect sessions. A process can have these or a classic session, depending on the mode of pyspark."""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakSet

from qod_magics.errors import TaskManagerError
from qod_magics.spark.servers.reason import reason
from qod_magics.spark.servers.timeouts import begin, call_within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
#: A listening server answers within this, seconds, however busy.
ANSWER_S = 30.0

_open: WeakSet[SparkSession] = WeakSet()  #: Connect sessions made here
_mode_is_ours = False  #: whether Connect mode was entered here


def connect(
    url: str, patience_s: float, alive: Callable[[], bool] = lambda: True, *, reattachable: bool = True
) -> SparkSession:
    """A new Connect session. Its calls stop retrying within seconds, where the client's default is ten minutes.

    `reattachable` calls survive a lost connection, and take three messages, and twice the CPU of both sides, where
    others take one. Needed over a network; on the loopback interface a connection is lost with its server.

    Raises:
        TaskManagerError: no answer within `patience_s` seconds, the server is no longer `alive`, the token is wrong,
            or this process has a classic session: pyspark supports only one kind per process.

    """
    load_client()
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")  # the error itself is reported
    try:
        # on its own thread, whose active session it becomes: the notebook's thread would keep it for ever
        spark = begin(ConnectSession.builder.remote(url).create, "connecting").result()
    except Exception as error:
        raise TaskManagerError(f"{hidden(url)}: {reason(error)}") from error
    _open.add(spark)
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


def load_client() -> None:
    """Import the Connect client, which takes a second: best done while a server starts.

    Raises:
        TaskManagerError: this process has a classic session.

    """
    refuse_beside_classic()
    global _mode_is_ours
    if CONNECT_MODE not in os.environ:
        os.environ[CONNECT_MODE] = "1"
        _mode_is_ours = True
    import pyspark.sql.connect.session  # noqa: F401


def leave_connect_mode() -> None:
    """Once no Connect session made here is open, allow classic sessions again."""
    global _mode_is_ours
    if _mode_is_ours and not _open:
        _mode_is_ours = False
        os.environ.pop(CONNECT_MODE, None)


def let_go(spark: SparkSession, timeout_s: float) -> None:
    """Release a Connect session on its server, with a timeout; then close the connection, which ends hanging calls.

    `spark.stop` alone would do both under a lock shared by all sessions, which a hung server would block.
    """
    _open.discard(spark)
    with suppress(Exception):
        begin(spark.client.release_session, "releasing").result(timeout_s)
    spark.release_session_on_close = False
    with suppress(Exception):
        begin(spark.stop, "closing").result(2.0)


def refuse_beside_classic() -> None:
    """Raises TaskManagerError where this process has a classic session."""
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
    """The URL without its token."""
    return re.sub(r"token=[^;]*", "token=...", url)
