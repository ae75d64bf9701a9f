"""Whatever way a session ends, no process, no port and no file of it stays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qod_magics.errors import QodError, TaskManagerError, UsageProblem
from qod_magics.session import Session
from qod_magics.spark import task_manager
from qod_magics.spark.server import free_ports
from tests.live.kernel import CellError, Kernel, Traces, left_in_common, look

LOAD = "import os\n%load_ext qod_magics"
GONE_S = 20.0  #: some seconds, on a machine that is busy with something else
SCENARIO = """{
    "seed": 1, "duration_s": 600,
    "topics": [{"topic": "trips", "partitions": 1, "rate": 100, "data": {"generator": "taxi-trips"}}],
}"""


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    held = Kernel(tmp_path)
    held.run(LOAD)
    yield held
    held.close()


@pytest.fixture
def before(kernel: Kernel) -> Traces:
    """What there is with the kernel, without a session."""
    return look()


def work(kernel: Kernel) -> Traces:
    """A session in full swing: broker, task manager, injector, a stream that sends and a query with state."""
    kernel.run("%qod up --task-managers 1 --cores 1 --period 2")
    kernel.run(f"from qod_magics.data import trip_schema\nTRIPS = trip_schema()\ninjector = qod.inject({SCENARIO})")
    kernel.run('%%qod_stream Trips --topic trips --schema "$TRIPS" --no-fuse\nsource')
    kernel.run(
        "%%qod_stream Zones --priority 1 --min-accuracy 0.2 --sink memory --no-fuse\n"
        "Trips.groupBy('PULocationID').agg(F.count('*').alias('n'))"
    )
    deadline = time.monotonic() + 60
    while kernel.run("print(len(Zones.to_pandas()) > 0)").strip() != "True":
        assert time.monotonic() < deadline, kernel.run("%qod status")
        time.sleep(1)
    return look()


def check_nothing_is_left(before: Traces, during: Traces) -> None:
    assert len(during.left(before)) > 5  # the look sees what there is
    deadline = time.monotonic() + GONE_S
    while look().left(before) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert look().left(before) == []
    time.sleep(1.0)  # what comes back after all was gone: a directory that a dying process makes anew
    assert look().left(before) == []
    assert left_in_common(during) == []


def test_down(kernel: Kernel, before: Traces) -> None:
    during = work(kernel)
    kernel.run("%qod down")
    check_nothing_is_left(before, during)
    assert kernel.run("print(os.environ.get('SPARK_CONNECT_MODE_ENABLED'))").strip() == "None"
    assert (
        kernel.run(
            "from pyspark.sql.connect.session import SparkSession as S\nprint(S.getActiveSession(), S._default_session)"
        ).strip()
        == "None None"
    )
    with pytest.raises(CellError, match="nothing is up"):
        kernel.run("%qod status")


def test_unload_ext(kernel: Kernel, before: Traces) -> None:
    during = work(kernel)
    kernel.run("%unload_ext qod_magics")
    check_nothing_is_left(before, during)
    with pytest.raises(CellError):
        kernel.run("qod")
    kernel.run("%load_ext qod_magics")


def test_a_kernel_that_is_restarted(kernel: Kernel, before: Traces) -> None:
    during = work(kernel)
    kernel.restart()
    kernel.run(LOAD)
    check_nothing_is_left(before | Traces.of(kernel.pid), during)


def test_a_kernel_that_is_killed(kernel: Kernel, before: Traces) -> None:
    during = work(kernel)
    kernel.kill()
    check_nothing_is_left(before, during)


# -- what never came up ------------------------------------------------------------------------------------------------


def beside_the_cluster(before: Traces) -> list[str]:
    """What is left. Ports do not count: the shared cluster opens one now and then, and those of the dead are gone."""
    return [line for line in look().left(before) if not line.startswith("port")]


def refused(up: Callable[[], Session], kind: type[QodError], match: str) -> None:
    """`up` fails so, and all is as before: the leak check of every live test looks at processes and directories."""
    before, mode = look(), os.environ.get(task_manager.CONNECT_MODE)
    with pytest.raises(kind, match=match) as caught:
        up()
    assert "\n" not in str(caught.value)
    assert beside_the_cluster(before) == []
    assert os.environ.get(task_manager.CONNECT_MODE) == mode


def test_up_with_a_server_that_is_not_there(cluster: Session) -> None:
    (port,) = free_ports(1)
    url = f"sc://127.0.0.1:{port}"
    refused(
        lambda: Session.up(task_managers=0, connect=[url], kafka=cluster.kafka.bootstrap),
        TaskManagerError,
        f"127.0.0.1:{port}.* can't be used",
    )


def test_up_that_fails_while_a_local_task_manager_starts(cluster: Session) -> None:
    """One fails at once, the other would take seconds: it does not come up behind our back."""
    server = cluster.runtime.task_managers["tm1"].server
    assert server is not None
    wrong = server.url.replace(server.token, "not-the-token")
    refused(lambda: Session.up(task_managers=1, cores=1, connect=[wrong]), TaskManagerError, "can't be used")


def test_up_with_more_cores_than_there_are(cluster: Session) -> None:
    refused(lambda: Session.up(cores=10_000), UsageProblem, "10000 cores")


def test_a_session_that_can_not_be_made(cluster: Session) -> None:
    before = look()
    with pytest.raises(TypeError):
        Session(cluster.kafka, checkpoints=5)  # type: ignore[arg-type]
    assert beside_the_cluster(before) == []


def test_two_sessions_end_by_themselves(cluster: Session) -> None:
    """The end of one leaves the other as it is."""
    before = look()
    other = Session.up(task_managers=1, cores=1, kafka=cluster.kafka.bootstrap)
    (manager,) = other.runtime.task_managers.values()
    other.down()
    assert beside_the_cluster(before) == []
    assert not manager.alive()
    assert os.environ.get(task_manager.CONNECT_MODE) is not None
    first = cluster.runtime.task_managers["tm1"]
    assert first.spark.sql("SELECT 1 AS one").collect()[0]["one"] == 1
