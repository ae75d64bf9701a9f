"""Which releases of Spark are supported, and which client may use which server."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.streaming import DataStreamWriter

from qod_magics.errors import SetupError
from qod_magics.machine.jars import connector_set
from qod_magics.machine.releases import (
    CONNECTOR_FAULT,
    SPARK_SUPPORTED,
    SPARK_VERSION,
    check_server,
    is_supported,
    may_have_fault,
    numbers,
    release_at,
    without_realtime,
)
from tests.raising import breaks

SETUP = Path(__file__).parents[2] / "setup.cfg"


def test_the_pinned_release_is_a_supported_one_and_the_package_asks_for_these() -> None:
    assert is_supported(SPARK_VERSION)
    first, beyond = SPARK_SUPPORTED
    assert is_supported(first)
    assert not is_supported(beyond)
    assert f"pyspark[connect]>={first},<{beyond}\n" in SETUP.read_text("utf-8")


@pytest.mark.parametrize(
    ("client", "server"), [("4.1.1", "4.1.0"), ("4.1.0", "4.2.0"), ("4.1.0", "4.3.0"), ("4.3.0", "4.3.1-SNAPSHOT")]
)
def test_a_server_may_be_as_new_as_its_client_or_newer(client: str, server: str) -> None:
    check_server(server, "sc://there:1", client)


@pytest.mark.parametrize(("client", "server"), [("4.3.0", "4.2.5"), ("4.2.0", "4.1.9")])
def test_a_server_that_is_older_than_its_client_is_refused_in_one_line(client: str, server: str) -> None:
    with pytest.raises(SetupError, check=breaks("client not newer", name="sc://there:1", value=server)) as caught:
        check_server(server, "sc://there:1", client)
    said = str(caught.value)
    assert client in said
    assert server in said
    assert f"pyspark[connect]=={server[:3]}.*" in said
    assert "\n" not in said


@pytest.mark.parametrize("server", ["3.5.6", "4.0.1", "5.0.0"])
def test_a_release_that_is_not_supported_is_refused(server: str) -> None:
    with pytest.raises(SetupError, check=breaks("supported release", value=server)):
        check_server(server, "sc://there:1", "4.1.0")


@pytest.mark.parametrize("release", ["4.2.1", "4.2.0-preview1", "4.3.1-SNAPSHOT", "4.1.0-amzn-0"])
def test_the_release_of_a_spark_is_that_of_its_jars(tmp_path: Path, release: str) -> None:
    assert release_at(tmp_path) is None
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / f"spark-core_2.13-{release}.jar").touch()
    found = release_at(tmp_path)
    assert found == release
    assert is_supported(found)


def test_each_supported_release_has_a_connector_that_is_not_newer_than_it() -> None:
    first, beyond = map(numbers, SPARK_SUPPORTED)
    for minor in range(first[1], beyond[1]):
        release = f"{first[0]}.{minor}.0"
        (found,) = (each for each in connector_set(release).checksums if ":spark-sql-kafka-" in each)
        assert numbers(found.rpartition(":")[2]) <= numbers(release), found


def test_only_servers_of_4_1_may_have_the_connector_that_can_not_report_a_batch() -> None:
    assert [may_have_fault(release) for release in ("4.1.0", "4.1.4", "4.2.0", "4.3.0")] == [True, True, False, False]
    (found,) = (each for each in connector_set("4.1.0").checksums if ":spark-sql-kafka-" in each)
    assert found.rpartition(":")[2] in CONNECTOR_FAULT[1], "ours is the one to take"


def test_real_time_mode_is_there_where_pyspark_takes_its_trigger(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_realtime() == ""

    def trigger(self: object, *, processingTime: str | None = None) -> None:
        """As pyspark 4.1 has it."""

    monkeypatch.setattr(DataStreamWriter, "trigger", trigger)
    assert "pyspark" in without_realtime()
