"""Spark's class that opens ports without a host, made to open them on loopback: made once, for the Spark at hand."""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest

from qod_magics.errors import SetupError, TaskManagerError
from qod_magics.machine import class_data
from qod_magics.machine.class_data import ClassFile
from qod_magics.spark.plans.job import Feed, PlanFacts
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers import server
from qod_magics.spark.servers.own_jars import loopback_jar, on_loopback, with_jar
from tests.raising import breaks
from tests.spark.fakes import instance, manager
from tests.texts import tells

HOME = Path(pyspark.__file__).parent
NETWORK = "org/apache/spark/network"
ENTRY = f"{NETWORK}/TransportContext.class"
WITHOUT_A_HOST = ("createServer", f"(ILjava/util/List;)L{NETWORK}/server/TransportServer;")
COMMAND = ["/java", "-Xmx1g", "-cp", os.pathsep.join(["/spark/conf", "/spark/jars/*"]), "some.Main", "-cp", "port=1"]


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("QOD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def sparks_own() -> bytes:
    (jar,) = (HOME / "jars").glob("spark-network-common_*.jar")
    with zipfile.ZipFile(jar) as files:
        return files.read(ENTRY)


def spark_with(home: Path, entries: dict[str, bytes]) -> Path:
    """A Spark whose jar has these entries."""
    (home / "jars").mkdir(parents=True)
    with zipfile.ZipFile(home / "jars" / "spark-network-common_2.13-4.9.0.jar", "w") as jar:
        for name, content in entries.items():
            jar.writestr(name, content)
    return home


def test_the_host_is_loopback_where_none_was_named_and_nowhere_else() -> None:
    old, new = ClassFile(sparks_own()), ClassFile(on_loopback(sparks_own()))
    null, loaded = old.code(*WITHOUT_A_HOST), new.code(*WITHOUT_A_HOST)
    assert (null[:5], null[5], null[6:]) == (loaded[:5], 0x01, loaded[8:])  # aconst_null
    assert loaded[5] == 0x13  # ldc_w
    assert bytes(new).count(b"127.0.0.1") == bytes(old).count(b"127.0.0.1") + 1
    with_a_host = ("createServer", WITHOUT_A_HOST[1].replace("(I", "(Ljava/lang/String;I"))
    assert new.code(*with_a_host) == old.code(*with_a_host)


def test_the_jar_has_that_class_alone_and_is_made_once(cache: Path) -> None:
    jar = loopback_jar(HOME)
    assert jar.parent == cache / "loopback"
    with zipfile.ZipFile(jar) as files:
        assert files.namelist() == [ENTRY]
        assert files.read(ENTRY) == on_loopback(sparks_own())
    made = jar.stat()
    assert loopback_jar(HOME) == jar
    assert jar.stat().st_ino == made.st_ino
    assert list(cache.rglob("*.part")) == []


def test_a_damaged_jar_is_made_again_and_counts_as_the_same() -> None:
    """A JVM passes over a jar that it can't read and says nothing; archives of classes depend on the jar's time."""
    jar = loopback_jar(HOME)
    content, made = jar.read_bytes(), jar.stat()
    jar.write_bytes(content[:100])
    assert loopback_jar(HOME) == jar
    assert jar.read_bytes() == content
    assert jar.stat().st_mtime_ns == made.st_mtime_ns


def test_it_comes_first_on_the_class_path_and_archives_depend_on_it(tmp_path: Path) -> None:
    jar = loopback_jar(HOME)
    found = with_jar(COMMAND, jar)
    assert found[3].split(os.pathsep) == [str(jar), "/spark/conf", "/spark/jars/*"]
    assert [*found[:3], COMMAND[3], *found[4:]] == COMMAND
    assert class_data.archive_for("server", found) != class_data.archive_for("server", COMMAND)


OTHERS = {
    "another class": lambda: {ENTRY: sparks_own().replace(b"createServer", b"createServes")},
    "another constructor": lambda: {
        ENTRY: sparks_own().replace(b"TransportContext;Ljava/lang/String;I", b"TransportContext;Ljava/lang/Object;I")
    },
    "done already": lambda: {ENTRY: on_loopback(sparks_own())},
    "no class file": lambda: {ENTRY: b"PK"},
    "no such class": lambda: {"other": b""},
}


@pytest.mark.parametrize("entries", OTHERS.values(), ids=OTHERS)
def test_of_another_spark_it_is_not_made_and_the_server_starts_without(entries, cache: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    home = spark_with(tmp_path / "spark", entries())
    with pytest.raises(SetupError, check=breaks("known class")) as caught:
        loopback_jar(home)
    assert "\n" not in str(caught.value)
    assert not cache.exists()
    command, why = server._on_loopback(COMMAND, home)
    assert command == COMMAND
    assert "TransportContext" in why


def test_a_cache_that_is_relative_is_found_from_the_servers_own_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QOD_CACHE", "nearby")
    jar = loopback_jar(HOME)
    assert jar.is_absolute()
    assert jar.is_relative_to(tmp_path / "nearby")


def test_a_place_at_which_a_class_path_is_split_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QOD_CACHE", str(tmp_path / f"a{os.pathsep}b"))
    command, why = server._on_loopback(COMMAND, HOME)
    assert command == COMMAND
    assert "set QOD_CACHE" in why


def test_without_a_place_for_it_the_server_starts_without(cache: Path) -> None:
    cache.write_text("a file")
    command, why = server._on_loopback(COMMAND, HOME)
    assert command == COMMAND
    assert str(cache) in why


def refusing(wanted: str) -> Instance:
    """An instance on a task manager on which no query may run in real-time mode."""
    home = manager()
    home.no_realtime = "shuffles would listen on all interfaces: why"
    one = instance(home)
    one.job = replace(one.job, max_latency_s=0.5, feeds=(Feed("T", ("T",), "t", (0,), {}, None, False),))
    one.mode_wanted = wanted
    return one


@pytest.mark.parametrize("keeps_state", [False, True])
def test_there_queries_run_in_micro_batches_or_are_refused_in_one_line(keeps_state: bool) -> None:
    facts = PlanFacts(keeps_state=keeps_state)
    one = refusing("auto")
    why = one._against_realtime(facts)
    assert tells(why, "shuffles", "why")
    assert one.task_manager is not None
    assert one.task_manager.describe.endswith(why)
    one.task_manager = manager("tm2")
    assert one._against_realtime(facts) == ""
    with pytest.raises(TaskManagerError) as caught:
        refusing("realtime")._against_realtime(facts)
    assert tells(caught.value, "T.1", why)
