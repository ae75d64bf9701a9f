"""Spark settings of our sessions and servers, and those that a user may not change."""

from __future__ import annotations

import re
from collections.abc import Mapping

from qod_magics.errors import SetupError

#: Spark keeps one report less than this per query, and this many stages of all queries; older ones are lost unless
#: fetched before.
REPORTS_KEPT, STAGES_KEPT = 64, 240

#: Into how many partitions a query shuffles. Those of its state are fixed by its first batch: Spark keeps their number
#: in the checkpoint, and takes it from there wherever the query runs later. See `TaskManager.shuffle`.
SHUFFLE = "spark.sql.shuffle.partitions"
#: Spark's own number of them: nobody has chosen it.
SHUFFLE_DEFAULT = 200

#: What a query's checkpoint (its state store's format) or our metrics depend on: the same on every task manager, since
#: queries move between them. Each can be set per session, too.
SESSION_CONF: Mapping[str, str] = {
    SHUFFLE: "1",  # until the first query starts; then as many as the last one that did: see TaskManager.shuffling
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": str(REPORTS_KEPT),
}
#: The same for our own sessions, with settings on which results of recipes depend.
OWN_SESSION_CONF: Mapping[str, str] = {
    **SESSION_CONF,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}

_LOOPBACK = "what the session starts listens on loopback only, behind a token"

#: Settings of every local server; a user's `conf` overrides them.
CONF: Mapping[str, str] = {
    **OWN_SESSION_CONF,
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.connect.session.manager.defaultSessionTimeout": "-1",
    # Other users of the machine reach the loopback interface, too: the driver's RPC and its blocks ask for a secret
    # that Spark makes, the UI shows and changes nothing, and hides the password of Kafka.
    "spark.authenticate": "true",
    "spark.ui.killEnabled": "false",
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|keystore[.]key|jaas",
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|token|access[.]?key|keystore[.]key|jaas",
    # the UI's page of Connect shows the statements, with the options of their sources
    "spark.sql.redaction.string.regex": (
        r'''(?is)LoginModule required(?:.*?;\\?"|[^;]*;)|(?:password|keystore[.]key)"\s*value:\s*"(?:[^"\\]|\\.)*"'''
    ),
    # Hadoop starts a process to set a local file's permissions and, with `FileContext`, others to check for links. A
    # checkpoint ends with its session, and needs no checksum files.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # A real-time batch ends when all rows read for it are processed, and only then reports what it read. With Spark's
    # 32 MB on either side of a shuffle, an overloaded one reads far more than it can process in its time.
    "spark.shuffle.streaming.networkBufferSize": "4096",
    "spark.shuffle.streaming.writerMaxMemory": "81920",  # four buffers, and what sockets hold
    "spark.shuffle.streaming.readerMaxMemory": "16384",
    "spark.kafka.producer.cache.timeout": "1m",  # each run of a query has its own producer
    # A streaming query has some 30 generated classes, and Spark's cache holds 100: beyond three queries, every batch
    # would compile its classes again, which takes more CPU than all else that a light batch does.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # back-to-back micro-batches have some ten stages per second and core
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": str(STAGES_KEPT),
    "spark.ui.retainedTasks": "400",
    # an idle query polls offsets at this interval; Spark's 10 ms would take a part of the core
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.showConsoleProgress": "false",
    # every batch's plan is described once more: keep descriptions short
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "2000",
    "spark.sql.debug.maxToStringFields": "8",
}

#: Settings that no user changes, by their beginnings, each with what to do instead.
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(OWN_SESSION_CONF.keys() - {SHUFFLE}, "checkpoints and results of running queries depend on it"),
    "spark.sql.streaming.checkpoint": "checkpoints of running queries depend on it",
    "spark.sql.streaming.checkpointLocation": "give --checkpoints",
    "spark.sql.streaming.checkpointFileManagerClass": "checkpoints of running queries depend on it",
    "spark.jars.packages": "give --packages",
    "spark.jars": "give --jars",
    "spark.master": "give --cores and --slots",
    "spark.driver.memory": "give --memory",
    "spark.driver.extraJavaOptions": "give --memory and --jit",
    "spark.driver.extraClassPath": "give --jars",
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.connect.grpc.binding": _LOOPBACK,
    "spark.authenticate": _LOOPBACK,
    "spark.ui.port": "the controller reads CPU there",
    "spark.ui.enabled": "the controller reads CPU there",
    "spark.port.maxRetries": "the session chooses the ports",
    "spark.local.dir": "its directory ends with the task manager",
}


def check_conf(conf: Mapping[str, str]) -> None:
    """Refuse Spark settings that the session depends on. Raises SetupError."""
    for name in conf:
        if not name.startswith("spark."):
            raise SetupError(f"a Spark setting must begin with spark., got {name!r}", name=name, rule="Spark setting")
        for refused, why in _REFUSED.items():
            if name == refused or name.startswith(f"{refused}."):
                raise SetupError(
                    f"{name} must stay as the session sets it, got {conf[name]!r}; {why}", name=name, rule="ours"
                )
    if SHUFFLE in conf and stated_shuffle(conf[SHUFFLE]) is None:
        raise SetupError(
            f"{SHUFFLE} must be a whole number from 1, got {conf[SHUFFLE]!r}; without it, queries shuffle into as many "
            "partitions as their task manager has cores",
            name=SHUFFLE,
            value=conf[SHUFFLE],
            rule="positive",
        )


def stated_shuffle(text: str | None) -> int | None:
    """Return the number of shuffle partitions that a user's setting states; None: it is none, or no number."""
    return int(text) if text is not None and re.fullmatch(r"[1-9]\d{0,5}", text) else None
