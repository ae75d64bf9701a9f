"""The jar of our Kafka source: compiled once for a Spark and a connector, and not without telling why."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from qod_magics.errors import SetupError
from qod_magics.machine.java import Java
from qod_magics.sources.kafka import DUE, KEEP, PACE, READER
from qod_magics.spark.changes.change import HOLD_S
from qod_magics.spark.plans.dial import LATEST_DUE_S, MOST_S
from qod_magics.spark.servers import server
from qod_magics.spark.servers.own_jars import SOURCE, STATE_CLASS, STATE_SOURCE, shedding_jar, state_jar

COMPILES = """\
#!/bin/sh
echo "$@" >> "$0.calls"
while [ "$1" != -d ]; do shift; done
mkdir -p "$2/org/own" && echo class > "$2/org/own/A.class"
"""
FAILS = """\
#!/bin/sh
echo "shedding_kafka.scala:9: error: object kafka010 is not a member of package sql"
exit 1
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("QOD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def java(place: Path, script: str) -> Java:
    """A java command that is this script."""
    place.write_text(script)
    place.chmod(0o755)
    return Java(place, 17, "PATH")


def spark(home: Path, release: str = "4.3.0") -> Path:
    """The home of a Spark of this release."""
    (home / "jars").mkdir(parents=True)
    (home / "jars" / f"spark-sql_2.13-{release}.jar").touch()
    return home


def test_it_is_compiled_once_for_each_spark_and_connector(tmp_path: Path) -> None:
    compiler, calls = java(tmp_path / "java", COMPILES), tmp_path / "java.calls"
    home, connector = spark(tmp_path / "spark"), [tmp_path / "spark-sql-kafka-4.2.0.jar"]
    jar = shedding_jar(compiler, home, connector)
    with zipfile.ZipFile(jar) as files:
        assert files.namelist() == ["org/own/A.class"]
    content = jar.read_bytes()
    assert shedding_jar(compiler, home, connector) == jar
    assert len(calls.read_text().splitlines()) == 1
    assert str(connector[0]) in calls.read_text()
    others = [
        shedding_jar(compiler, spark(tmp_path / "newer", "4.3.1"), connector),
        shedding_jar(compiler, home, [tmp_path / "spark-sql-kafka-4.3.0.jar"]),
    ]
    assert len({jar, *others}) == 3
    jar.unlink()
    assert shedding_jar(compiler, home, connector).read_bytes() == content


def test_the_jar_that_assigns_state_is_made_likewise(tmp_path: Path) -> None:
    compiler, calls, home = java(tmp_path / "java", COMPILES), tmp_path / "java.calls", spark(tmp_path / "spark")
    jar = state_jar(compiler, home)
    assert state_jar(compiler, home) == jar
    assert len(calls.read_text().splitlines()) == 1
    assert jar != shedding_jar(compiler, home, [])
    package, _, name = STATE_CLASS.rpartition(".")
    text = STATE_SOURCE.read_text("utf-8")
    assert f"package {package}\n" in text
    assert f"object {name} " in text
    jars, why = server._with_state_jar([jar], java(tmp_path / "other", FAILS), spark(tmp_path / "newer", "4.3.1"))
    assert jars == [jar]
    assert why


def test_a_spark_that_it_does_not_compile_for_keeps_its_own_source(tmp_path: Path, cache: Path) -> None:
    home, connector = spark(tmp_path / "spark"), [tmp_path / "connector.jar"]
    compiler = java(tmp_path / "java", FAILS)
    with pytest.raises(SetupError, match="kafka010"):
        shedding_jar(compiler, home, connector)
    assert not list(cache.glob("kafka-source/*"))
    jars, why = server._with_shedding_source(connector, compiler, home)
    assert jars == connector
    assert "kafka010" in why


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_nor_is_it_used_where_the_cache_can_not_be_written(tmp_path: Path, cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o500)
    _, why = server._with_shedding_source([], java(tmp_path / "java", COMPILES), spark(tmp_path / "spark"))
    assert why


def test_plans_and_source_name_the_same_class_options_columns_and_delays() -> None:
    text = SOURCE.read_text("utf-8")
    package, _, name = READER.rpartition(".")
    assert f"package {package}\n" in text
    assert f"class {name} extends TableProvider" in text
    assert f'val Keep = "{KEEP}"' in text
    assert f'val Pace = "{PACE}"' in text
    assert f'val Due = "{DUE}"' in text
    assert f"val MostS = {MOST_S}\n" in text
    assert f"val LatestDueS = {LATEST_DUE_S}\n" in text
    assert f"val HoldMs = {1000 * HOLD_S:.0f}L\n" in text
    assert all(f'.add("{column}"' in text for column in ("_p", "_records"))
