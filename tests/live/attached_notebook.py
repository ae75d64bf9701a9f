"""A notebook in a process of its own, with its own Spark session: run by test_attach.py, prints JSON as its last line.

Classic mode and Connect mode exclude each other in one process, and pytest's is in Connect mode.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stdout
from typing import Any

import psutil
from IPython.core.interactiveshell import InteractiveShell
from pyspark.sql import SparkSession

from qod_magics.errors import QodError
from qod_magics.machine.java import JIT_OPTIONS
from qod_magics.session.session import Session
from qod_magics.spark.queries import instance
from tests.live.applications import count, observed, turn
from tests.live.conftest import eventually, produce
from tests.live.standalone import LEAST_BATCH

#: What the notebook's session has of its own: a time zone, and Spark's defaults.
SETTINGS = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.shuffle.partitions": "200",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}


def main(kafka: str, topic: str, url: str, jars: str) -> dict[str, Any]:
    """Attach the session, run a stateful query on it, turn its dial, go down; what was seen on the way."""
    if url:
        spark = SparkSession.builder.remote(url).getOrCreate()
        for key, value in SETTINGS.items():
            spark.conf.set(key, value)
    else:
        builder = SparkSession.builder.master("local[4]").config("spark.driver.memory", "700m")
        builder = builder.config("spark.driver.extraJavaOptions", " ".join(JIT_OPTIONS["c1"]))
        spark = (builder.config("spark.jars", jars) if jars else builder).getOrCreate()
    spark.conf.set(LEAST_BATCH, "1000")
    spark.conf.set("spark.sql.session.timeZone", SETTINGS["spark.sql.session.timeZone"])
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "qod_magics")
    shell.user_ns["spark"] = spark
    if jars or url:
        spark.range(7).toDF("key").createOrReplaceTempView("early_keys")
        shell.user_ns["theirs"] = spark.range(7).toDF("key")
    where = json.loads(kafka)
    options = " ".join(f"--kafka-option {name}={value}" for name, value in where["kafka_options"].items())
    seen: dict[str, Any] = {}
    try:
        shell.run_line_magic("qod", f"attach --kafka {where['kafka']} {options} --period 2")
    except QodError as error:
        seen["refused"] = str(error)
    else:
        with redirect_stdout(io.StringIO()):
            seen |= use(shell, shell.user_ns["qod"], topic, classic=not url)
        shell.run_line_magic("qod", "down")
    seen["restored"] = {key: spark.conf.get(key) for key in SETTINGS} == SETTINGS
    seen["queries"] = len(spark.streams.active)
    seen["goes_on"] = spark.range(10).count() == 10
    seen["children"] = [p.name() for p in psutil.Process().children()]
    spark.stop()
    try:
        Session.attach(spark, **where)
    except QodError as error:
        seen["stopped"] = str(error)
    return seen


def use(shell: InteractiveShell, qod: Session, topic: str, classic: bool) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    manager = qod.runtime.task_managers["spark"]
    seen |= {"kind": manager.kind, "reading": manager.reading.value, "cores": manager.cores, "ui": manager.ui}
    if classic:
        for words in ("add-tm", "add-tm sc://localhost:1"):
            try:
                shell.run_line_magic("qod", words)
            except QodError as error:
                seen[words] = str(error)
    spark = shell.user_ns["spark"]
    seen["spark"] = qod.spark is spark
    seen["unchanged"] = {key: spark.conf.get(key) for key in SETTINGS} == SETTINGS
    late = "early_keys"
    if classic:  # views of a Connect session are known to its server alone
        late = "late_keys"
        spark.range(7).toDF("key").createOrReplaceTempView(late)
    qod.pause(open_shedders=True)
    shell.run_cell_magic(
        "qod_stream",
        f"counts --topic {topic} --schema 'key LONG' --priority 1 --min-accuracy 0.1 --starting earliest",
        "source.groupBy('key').count()",
    )
    query = qod.runtime.instances["counts.1"]
    seen |= {"mode": query.mode, "mode_why": query.mode_why}

    def read() -> list[int]:
        books = count(qod, "counts")
        return [books.processed, books.dropped]

    def feed(number: int) -> list[int]:
        before = read()
        produce(qod, topic, ({"key": i % 7} for i in range(number)))
        eventually(lambda: sum(read()) >= sum(before) + number, what="all rows read")
        return [after - then for after, then in zip(read(), before, strict=True)]

    seen["open"] = feed(2000)
    turn(qod, {(None, "counts"): 0.25})
    seen["quarter"] = feed(4000)
    seen["cpu"] = eventually(lambda: observed(qod) and (r := query.reading(2.0)) and r.cpu, what="CPU by REST")

    def counted() -> int:
        return sum(row[1] for row in qod.results("counts").groupBy("key").max("count").collect())

    seen["kept"] = read()[0]
    seen["counted"] = eventually(lambda: (n := counted()) >= seen["kept"] and n, what="all rows counted")
    shell.run_cell_magic(
        "qod_stream", f"keys --topic {topic} --schema 'key LONG' --starting earliest", "source.where('key > 0')"
    )
    for name, rest, table in (("even", 0, "theirs"), ("odd", 1, f"spark.table('{late}')")):
        recipe = f"{table}.join(keys.where('key % 2 = {rest}'), 'key').join(spark.table('early_keys'), 'key')"
        shell.run_cell_magic("qod_stream", f"{name} --priority 1", recipe)
    seen["paths"] = sorted(spec.path for spec in qod.runtime.deployment.specs.values())
    seen["joined"] = qod.results("odd").join(shell.user_ns["theirs"], "key").columns
    odd = sum(i % 7 in (1, 3, 5) for number in (2000, 4000) for i in range(number))
    seen["odd"] = eventually(lambda: (n := qod.results("odd").count()) >= odd and n == odd, what="the odd keys")
    return seen


if __name__ == "__main__":
    instance.REALTIME_BATCH_S = 1.0
    print(json.dumps(main(*sys.argv[1:])))
