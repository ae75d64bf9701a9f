"""How a task manager reads its dials, and what is passed to its JVM."""

from __future__ import annotations

import shlex

import pytest

from qod_magics.spark.dial import DialReading
from qod_magics.spark.server import _quoted
from qod_magics.spark.task_manager import TaskManager
from tests.spark.stand_ins import BOARD, Spark


class Mastered(Spark):
    """A session with this master."""

    def __init__(self, master: str) -> None:
        super().__init__()
        self.master = master

    def get(self, key: str) -> str | None:
        return self.master if key == "spark.master" else super().get(key)


@pytest.mark.parametrize(
    ("master", "reading"),
    [
        ("local[4]", DialReading.ROW),
        ("local", DialReading.ROW),
        ("local-cluster[2,1,1024]", DialReading.BATCH),  # its executors are other processes than the one with the dials
        ("spark://here:7077", DialReading.BATCH),
    ],
)
def test_dials_are_read_for_each_row_only_where_the_driver_works_itself(master: str, reading: DialReading) -> None:
    made = TaskManager("tm1", Mastered(master), kind="attached", cores=1.0, board=BOARD)  # type: ignore[arg-type]
    assert made.reading is reading


@pytest.mark.parametrize("option", ["-Dx=/tmp/a b", "-Dx=plain", '-Dx=a "b" c', "-Dx=c:\\a b"])
def test_an_option_with_spaces_stays_one(option: str) -> None:
    assert shlex.split(_quoted(option)) == [option]
