"""What people do in a notebook beside the streams: rows of their own, batch reads, files and modules of theirs."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from confluent_kafka import TopicPartition
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType
from pyspark.sql.udf import UserDefinedFunction

from qod_magics.errors import ApplicationError, KafkaError, QodError
from qod_magics.kafka.clusters import Clusters
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import delete_topics, topic_partitions
from qod_magics.notebook.commands import Begun
from qod_magics.notebook.magics import QodMagics
from qod_magics.session.session import Session
from tests.live.conftest import eventually, kafka_of, new_topic
from tests.raising import breaks
from tests.texts import tells

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "kafka.md"


class Notebook:
    """A shell in which the shared cluster is up."""

    def __init__(self, shell: InteractiveShell, session: Session) -> None:
        self.shell = shell
        (self.magics,) = [one for one in shell.configurables if isinstance(one, QodMagics)]
        self.magics._keep(Begun("up", {}, {}), session)

    def run(self, cell: str) -> str:
        with capture_output() as captured:
            result = self.shell.run_cell(cell)
        assert result.success, captured.stdout + captured.stderr
        return str(captured.stdout)


@pytest.fixture
def notebook(qod: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(colors="nocolor")
    shell.run_line_magic("load_ext", "qod_magics")
    made = Notebook(shell, qod)
    topics = set(topic_partitions(qod.kafka))
    yield made
    qod.stop_all()
    made.magics.session = None  # the shared one stays up
    shell.run_line_magic("unload_ext", "qod_magics")
    InteractiveShell.clear_instance()
    delete_topics(qod.kafka, [name for name in topic_partitions(qod.kafka) if name not in topics])


def rows(session: Session, name: str, count: int) -> list[dict[str, Any]]:
    """The rows of a query, once there are as many."""

    def found() -> list[dict[str, Any]]:
        return [row.asDict() for row in session.results(name).collect()]

    return eventually(lambda: there if len(there := found()) >= count else None, what=lambda: f"{count}: {found()}")


@pytest.mark.smoke
def test_the_guides_example_of_own_rows(notebook: Notebook, qod: Session) -> None:
    section = GUIDE.read_text("utf-8").partition("## Send your own rows\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert len(cells) == 3
    for cell in cells:
        notebook.run(cell)
    assert rows(qod, "rides", 1) == [{"zone": 7, "fare": 12.5}]
    assert topic_partitions(qod.kafka)["clicks"] == 2
    assert sum(end_offsets(qod.kafka, ["clicks"])["clicks"].values()) == 1


def test_every_kind_of_row_arrives(notebook: Notebook, qod: Session) -> None:
    assert tells(notebook.run("%qod topic mixed --partitions 2"), "mixed created", 2)
    assert tells(notebook.run("%qod topic mixed --partitions 2"), "mixed", 2)
    assert "mixed  2 partitions\n" in notebook.run("%qod topic")
    declared = "number INT, name STRING, at TIMESTAMP"
    notebook.run(f'%%qod_stream mixed_rows --topic mixed --schema "{declared}" --sink memory\nsource')
    notebook.shell.user_ns["pd"] = pd
    sent = notebook.run(
        """
from datetime import datetime
at = datetime(2026, 1, 2, 3, 4, 5)
qod.send("mixed", {"number": 1, "name": "dict", "at": at})
qod.send("mixed", pd.DataFrame({"number": [2, None], "name": ["pandas", "none"], "at": [at, at]}), key="name")
qod.send("mixed", spark.sql("SELECT 3 AS number, 'spark' AS name, TIMESTAMP '2026-01-02 03:04:05' AS at"), key="number")
qod.send("mixed", b'{"number": 4, "name": "bytes", "at": "2026-01-02T03:04:05Z"}', timestamp=lambda row: at)
"""
    )
    assert tells(sent, "1 row", "'mixed'")
    found = {row["name"]: row for row in rows(qod, "mixed_rows", 5)}
    numbers = {"dict": 1, "pandas": 2, "none": None, "spark": 3, "bytes": 4}
    assert {name: row["number"] for name, row in found.items()} == numbers
    assert len({row["at"] for row in found.values()}) == 1  # the same instant, however it was written


def test_a_topic_of_the_users_own_kafka_is_created_only_when_asked_for(qod: Session, topic: str) -> None:
    theirs = f"{topic}-theirs"
    own, broker = qod._clusters, kafka_of(qod)
    qod._clusters = Clusters.of(broker["kafka"], broker["kafka_options"])
    try:
        with pytest.raises(KafkaError, check=breaks("exists", name=theirs)):
            qod.send(theirs, [{"a": 1}])
        assert qod.send(theirs, [{"a": 1}], partitions=3).rows == 1
        assert topic_partitions(qod.kafka)[theirs] == 3
    finally:
        qod._clusters = own
        delete_topics(qod.kafka, [theirs])


@pytest.mark.smoke
def test_batch_reads_beside_the_streams(notebook: Notebook, qod: Session, tmp_path: Path) -> None:
    """On a session that is not ours: what is set there, or that it is stopped, changes no query."""
    spark = notebook.shell.user_ns["spark"]
    assert spark is qod.spark
    assert spark is SparkSession.builder.appName("theirs").getOrCreate()
    ours = [manager.spark for manager in qod.runtime.task_managers.values()]
    assert spark not in ours
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    assert {each.conf.get("spark.sql.shuffle.partitions") for each in ours} == {"1"}
    spark.range(3).write.parquet(str(tmp_path / "numbers"))
    assert spark.read.parquet(str(tmp_path / "numbers")).count() == 3
    name = new_topic(qod)
    notebook.run(f'%%qod_stream numbered --topic {name} --schema "id INT" --sink memory\nsource')
    qod.send(name, [{"id": 1}])
    rows(qod, "numbered", 1)
    assert qod.results("numbered").join(spark.range(5), "id").count() == 1
    spark.stop()
    assert qod.spark.range(4).count() == 4
    assert len(rows(qod, "numbered", 1)) == 1


def test_sql_reads_temporary_views_of_the_notebook(notebook: Notebook, qod: Session) -> None:
    """On any task manager, as they were when the cell ran."""
    name = new_topic(qod)
    cell = f"""%%qod_stream viewed --topic {name} --schema "zone INT" --sink memory
SELECT zone, name FROM source JOIN Low USING (zone)"""
    notebook.run(
        """
named = spark.createDataFrame([(1, "one"), (2, "two"), (9, "nine")], "zone INT, name STRING")
named.createOrReplaceTempView("zones")
spark.sql("CREATE OR REPLACE TEMPORARY VIEW low AS SELECT * FROM zones WHERE zone < 5")
"""
    )
    assert "viewed runs" in notebook.run(cell)
    qod.send(name, [{"zone": 1}, {"zone": 9}])
    assert rows(qod, "viewed", 1) == [{"zone": 1, "name": "one"}]
    notebook.run("named.where('zone > 1').createOrReplaceTempView('zones')")
    assert "unchanged" in notebook.run(cell)
    here = qod.runtime.instances["viewed.1"].task_manager
    assert here is not None
    qod.move("viewed.1", next(id for id in qod.runtime.task_managers if id != here.id))
    qod.send(name, [{"zone": 2}, {"zone": 9}])
    assert [row["name"] for row in rows(qod, "viewed", 2)] == ["one", "two"]
    spark = notebook.shell.user_ns["spark"]
    spark.catalog.dropTempView("low")
    with pytest.raises(ApplicationError, match=r"TABLE_OR_VIEW_NOT_FOUND.*createOrReplaceTempView"):
        qod.cell(_options("lost", name), "SELECT * FROM source JOIN low ON id = zone", {})
    spark.sql("CREATE TEMPORARY VIEW low (zone) AS SELECT 1")
    with pytest.raises(ApplicationError, match="createOrReplaceTempView"):
        qod.cell(_options("lost", name), "SELECT * FROM source JOIN low ON id = zone", {})


def test_a_topic_is_looked_into_and_read_from_where_it_was(notebook: Notebook, qod: Session) -> None:
    name = new_topic(qod, partitions=2)
    assert "no --schema" not in notebook.run(f"%qod peek {name}")
    old = [{"zone": 1, "fare": 0.5, "at": {"first name": "a"}}]
    qod.send(name, [*old, *old], timestamp=lambda row: 1_000_000_000_000)
    qod.send(name, [{"zone": 2, "fare": 2}, b"none"], timestamp=lambda row: 1_700_000_000_000)
    said = notebook.run(f"%qod peek {name}")
    assert "4 records, 0.0/s" in said
    schema = next(line for line in said.splitlines() if line.startswith("--schema")).split("  (")[0]
    kafka = qod.runtime.deployment.sources.of(name)
    ends = dict(kafka.begin(name, "latest"))
    first = kafka.begin(name, "2023-11-14T22:13:20")
    assert sum(ends.values()) - sum(first.values()) == 2
    assert kafka.begin(name, "-1m") == ends
    assert kafka.begin(name, json.dumps(first)) == first
    for wrong in ("group:nobody", '{"0": 1}', '{"0": 99, "1": 0}'):
        with pytest.raises(QodError, check=breaks()):
            kafka.begin(name, wrong)
    consumer = qod.kafka.consumer({**qod.kafka.client_config(), "group.id": f"{name}-group"})
    consumer.commit(offsets=[TopicPartition(name, p, at) for p, at in first.items()], asynchronous=False)
    consumer.close()
    assert kafka.begin(name, f"group:{name}-group") == first
    notebook.run(f"%%qod_stream began --topic {name} {schema} --sink memory --starting group:{name}-group\nsource")
    assert rows(qod, "began", 1)[0]["zone"] == 2
    read = qod.runtime.deployment.accounts
    assert [account.first for account in read.values() if account.topic == name] == [first]


HELPERS = "import inside\ndef clean(x): return f'{inside.TEXT} {x}'\n"


@pytest.fixture
def helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module that the servers, which are up already, have no path to."""
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "inside.py").write_text("TEXT = 'first'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("helpers")
    for name in ("helpers", "inside"):
        del sys.modules[name]


@pytest.mark.smoke
def test_recipes_use_files_modules_and_udfs_of_the_notebook(
    notebook: Notebook, qod: Session, helpers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One query with all of it: a relative path, a DataFrame read before, a helper, a UDF from before `%qod up`."""
    file = tmp_path / "zones.csv"
    file.write_text("zone,name\n1,one\n2,two\n")
    with monkeypatch.context() as patch:
        patch.delenv("SPARK_CONNECT_MODE_ENABLED")
        before = UserDefinedFunction(lambda x: f"before {x}", StringType())._wrapped()
    names = {"before": before, "helpers": helpers, "relative": os.path.relpath(file)}
    notebook.shell.user_ns.update(names)
    name = new_topic(qod)
    notebook.run(
        """
from pyspark.sql import functions as F
zones = spark.read.csv(relative, header=True, inferSchema=True)
clean = F.udf(helpers.clean, "string")
def named(df):
    return df.join(zones.select("zone"), "zone").join(spark.read.csv(relative, header=True, inferSchema=True), "zone")
"""
    )
    cell = f"""%%qod_stream named_rows --topic {name} --schema "zone INT" --sink memory
named(source).select("zone", "name", before("zone").alias("b"), clean("zone").alias("c"))"""
    notebook.run(cell)
    qod.send(name, [{"zone": 1}, {"zone": 9}])
    assert rows(qod, "named_rows", 1) == [{"zone": 1, "name": "one", "b": "before 1", "c": "first 1"}]
    (tmp_path / "inside.py").write_text("TEXT = 'and edited'\n")
    time.sleep(0.01)
    importlib.reload(sys.modules["inside"])
    notebook.run(cell.replace('"name"', 'F.upper("name").alias("name")'))
    qod.send(name, [{"zone": 2}])
    assert rows(qod, "named_rows", 1) == [{"zone": 2, "name": "TWO", "b": "before 2", "c": "and edited 2"}]


def test_a_path_that_is_not_there_is_said_to_be_the_task_managers(qod: Session, topic: str) -> None:
    with pytest.raises(ApplicationError, match=r"'lost'.*PATH_NOT_FOUND.*task manager"):
        qod.cell(_options("lost", topic), "source.join(spark.read.csv('no/zones.csv'))", {})


def test_the_topic_of_a_sink_is_created_as_asked_for_and_that_is_said(qod: Session, topic: str) -> None:
    out, wide = f"{topic}-out", f"{topic}-wide"
    qod.send(topic, [{"id": 1}])
    said = [qod.cell(_options("one", topic, f"--sink kafka:{out}"), "source", {}).said]
    said += [qod.cell(_options("two", topic, f"--sink kafka:{wide} --sink-option partitions=3"), "source", {}).said]
    assert tells(said[0], "one", f"'{out}'", "1 partition", "partitions=N")
    assert tells(said[1], "two", f"'{wide}'", "3 partitions")
    assert [topic_partitions(qod.kafka)[name] for name in (out, wide)] == [1, 3]
    with pytest.raises(KafkaError, check=breaks("partitions")):
        qod.cell(_options("three", topic, f"--sink kafka:{wide} --sink-option partitions=4"), "source", {})
    qod.stop_all()
    delete_topics(qod.kafka, [out, wide])


def _options(name: str, topic: str, more: str = "--sink memory") -> Any:
    from qod_magics.application.streams.options import parse_stream_line

    return parse_stream_line(f"{name} --topic {topic} --schema {json.dumps('id INT')} {more}")
