"""The labs that need no Spark, run as they are: exercises that are open ask for an answer, right answers are right.
Their parts on Spark are left out here (they run in live/test_notebooks.py)."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from jupyter_client import KernelManager
from nbclient import NotebookClient

from qod_magics.core.runtime import Count
from qod_magics.notebook.replies import FROM_THE_START

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"

#: What a student would write in the place of the dots, as it is written; by lab, in the order of the exercises.
ANSWERS: dict[str, dict[str, str]] = {
    "lab2_accuracy_and_priority": {
        "gave_way": '"speeds"',
        "held_at": "0.1",
        "fares_then": "0.3",
        "ahead": '"fares"',
        "needed": "0.5 * 9.9 / 0.467 + 0.3 * 48.6 / 0.467 + 0.5 * 11.9 / 0.1",
    },
    "lab3_fair_share": {
        "source_accuracy": "310.2 / 768.8",
        "query_accuracy": "0.1943",
        "least": "17.18",
        "shares": "[4, 10, 16]",
        "favoured": '"TDSnk1"',
    },
    "lab4_drop_propagation": {
        "d_source, d_b": "0.8, 0.5",
        "saved": "200 - 0.8 * 200",
        "d_alone": "0.4",
        "reached_m": "(100 + 50) / 200",
    },
    "lab5_rescheduling": {
        "need": "5.39 + 5.47 + 2 * 6.94 + 16.26 - 40.37",
        "fail": '{"b", "d", "e", "f"}',
        "failed": '"TDSnk1.2"',
        "places": '{"x": "tm2", "y": "tm3", "z": "tm2"}',
        "highest": "0.19",
        "least": "0.25",
    },
    "lab6_kafka_lag": {
        "input_rate": "(400 - 100) / 5 + 240",
        "from_offsets": "(1600 - 1000) / 5 + (5900 - 5000) / 5",
        "wait": "6000 / 1500",
        "waits": "36082 / 891",
        "drained_after": "33726 / (891 - 300)",
    },
    "lab7_targets_and_machines": {
        "doubled, half_as_much_again": "2, 3",
        "started, started_for_more": '"medium", "large"',
        "moved": '"speeds.1"',
        "highest_rate": "300 + (0.8 * 84.0 - 60.9) / ((115.8 - 60.9) / 300)",
        "emptied_at": "307 + 60",
        "node_hours": "(600 + 412) / 3600",
        "with_standby, without_standby": "(237.31 - 147.92) / (14.056 - 8.333), (231.06 - 147.92) / (12.708 - 8.333)",
        "starts_one": "False",
    },
    "lab8_how_far_off": {
        "rows_of_zone": "60 / 0.5 + 10 / 0.1",
        "times_as_wide": "(0.9 / 0.1 / (0.6 / 0.4)) ** 0.5",
        "missing_an_hour": "24 * 50 * 0.05",
        "pairs_by_row, pairs_by_key": "0.8 * 0.5, 0.5",
        "users_seen": "1 - 0.7**3",
    },
    "lab9_deadlines": {
        "after_parse, latest_start": "7 + 12, 1000 + 100 - 4 - 19",
        "deadline_of_4, deadline_of_5": "3000 + 200 + 300 - 20 - 10, 3350 + 300 - 20 - 10",
        "first_without_windows, first_with_windows": '"totals", "alerts"',
        "carried, held_by_fifo": "8, 5",
        "cpu_ms, share_needed": "0.15 + 2 + 0.8 * 5, (40 * 6.15 + 6 * 120.2) / 1000",
        "fitting, by_length, with_laxity": '{"v", "y"}, 4, 7',
        "saturates_at": "1 / (16 * 0.296)",
        "with_dynamic_binding, with_offloading": "128 * 4, 128 + 4",
    },
    "lab10_buffers_and_chains": {
        "mean_wait": "(4096 / 128 - 1) / 2 / 10",
        "worst_channel, worst_task": '"Encoder-Sink", "Merger"',
        "next_size": "32768 * 0.98**20",
        "chained": '["Decoder", "Merger", "Overlay"]',
        "reports": "True",
        "anchored_at, sequences_of_w3": '"D", 2 * 3 * 3',
        "most": "200 * 8 / 102.4",
    },
    "lab11_hot_slices": {
        "of_six, of_five": "7, 9",
        "on_third": '{"S1": 2, "S3": 2}',
        "made, enough": "7, 6",
        "with_21, with_200": "(21 + 19) / 21, (200 + 19) / 200",
        "gets, loads": '["E3", "E2", "E1"], 2',
        "popular, in_the_end": "[6, 5, 3, 2], 1",
        "order": "[1, 3, 1, 1, 3, 1]",
        "per_hour": "100 * 1000 * (4.22 - 1.94) * 0.005",
    },
}

WITHOUT_SPARK = ("index", *ANSWERS)
WITH_A_PART_ON_SPARK = ("lab7_targets_and_machines", "lab9_deadlines", "lab10_buffers_and_chains", "lab11_hot_slices")
LABS = sorted(path.stem for path in NOTEBOOKS.glob("lab*.ipynb"))
OPEN = re.compile(r"^(?P<names>\w+(?:, \w+)*) = \.\.\.(?:, \.\.\.)*$", re.MULTILINE)


def read(name: str) -> Any:
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", 4)


def exercises(book: Any) -> list[str]:
    """The names that a lab's open cells ask for."""
    return [match["names"] for cell in book.cells if (match := OPEN.search(cell.source))]


def answered(name: str) -> Any:
    """A lab in which each open cell is followed by the same cell with its answer."""
    book, cells = read(name), []
    for cell in book.cells:
        cells.append(cell)
        if cell.cell_type == "code" and (match := OPEN.search(cell.source)):
            answer = f"{match['names']} = {ANSWERS[name][match['names']]}"
            cells.append(nbformat.v4.new_code_cell(OPEN.sub(lambda _, answer=answer: answer, cell.source)))
    book.cells = cells
    return book


def texts(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """For one lab after the other: to start one, and to import what they need, takes longer than most labs."""
    folder = tmp_path_factory.mktemp("lab") / "notebooks"
    shutil.copytree(NOTEBOOKS, folder, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    # sockets in the file system: kernels that start at the same time may pick the same TCP port
    manager = KernelManager(transport="ipc", ip=str(folder / "kernel"))
    environment = {**os.environ, "QOD_DEMO_SCALE": "0"}  # no part runs on Spark
    manager.start_kernel(cwd=str(folder), env=environment, extra_arguments=[FROM_THE_START])
    try:
        yield manager
    finally:
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


@pytest.mark.kernel
@pytest.mark.timeout(600)  # it may start the kernel, and waits for 120 s for each of its cells
@pytest.mark.parametrize("name", WITHOUT_SPARK)
def test_runs_without_error_and_takes_the_right_answers(name: str, kernel: KernelManager) -> None:
    book = answered(name)
    book.cells.append(nbformat.v4.new_code_cell("%reset -f"))  # the next one finds none of its names
    NotebookClient(book, km=kernel, timeout=120, startup_timeout=120).execute()
    said = [texts(cell) for cell in book.cells if cell.cell_type == "code" and "check(" in cell.source]
    assert len(said) == 2 * len(ANSWERS.get(name, {}))
    for asked, told in zip(said[::2], said[1::2], strict=True):
        assert asked.startswith("Your turn")
        assert told.startswith("Right: "), told
    on_spark = [
        cell for cell in book.cells if cell.cell_type == "code" and re.search(r"^(if )?live\b", cell.source, re.M)
    ]
    shown = "".join(map(texts, on_spark))
    assert bool(on_spark) == (name in WITH_A_PART_ON_SPARK)
    assert shown.count("\n") == len(shown.splitlines()) == bool(on_spark), "one line says that it is left out"


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_each_exercise_has_its_answer_here(name: str) -> None:
    assert exercises(read(name)) == list(ANSWERS[name])


@pytest.mark.parametrize("name", LABS)
def test_a_lab_begins_with_its_goal_has_exercises_and_ends_at_the_source(name: str) -> None:
    cells = read(name).cells
    number = name.partition("_")[0].removeprefix("lab")
    assert cells[0].source.startswith(f"# Lab {number}: ")
    assert "**Goal.**" in cells[0].source
    assert len(exercises(read(name))) >= 2
    last = [cell.source for cell in cells if cell.cell_type == "markdown"][-1]
    assert last.startswith("## To read on")
    named = re.findall(r"`(qod_magics/[\w/.]+)`", last)
    assert named
    for path in named:
        assert (NOTEBOOKS.parent / path).exists(), path


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_stored_as_it_is_to_be_read(path: Path) -> None:
    text = path.read_text("utf-8")
    book = nbformat.read(path, 4)
    nbformat.validate(book)
    assert (book.nbformat, book.nbformat_minor) == (4, 5)
    assert text.endswith("}\n")
    assert not text.endswith("\n\n")
    ids = [cell.id for cell in book.cells]
    assert len(set(ids)) == len(ids)
    for cell in book.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


def test_the_index_names_every_notebook_and_nothing_else() -> None:
    linked = set(re.findall(r"\]\((\w+)\.ipynb\)", "\n".join(cell.source for cell in read("index").cells)))
    assert linked == {path.stem for path in NOTEBOOKS.glob("*.ipynb")} - {"index"}


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "markdown":
            for target in re.findall(r"\]\(([\w./]+)\)", cell.source):
                assert (NOTEBOOKS / target).exists(), target


def test_lab7_waits_until_a_cycle_has_counted_its_trips() -> None:
    """The first cycles have measured nothing, or no row of that stream yet."""
    (cell,) = [cell for cell in read("lab7_targets_and_machines").cells if "async def until" in cell.source]
    functions = [
        node
        for node in ast.parse(cell.source.split("\nif live:")[0]).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in {"on_the_way", "until"}
    ]
    counted = Count(arrived=7, processed=7)
    counts: list[dict[str, Count]] = [{}, {"rides>zones": counted}]
    cycles = [
        SimpleNamespace(measured=None),
        *(SimpleNamespace(measured=SimpleNamespace(counts=each)) for each in counts),
    ]
    qod, asked = SimpleNamespace(last=None), list[Count]()

    async def watch(_: float) -> None:
        qod.last = cycles.pop(0)

    qod.watch = watch
    names: dict[str, Any] = {"qod": qod}
    exec(compile(ast.Module(functions, []), "lab 7", "exec"), names)

    def done(trips: Count) -> bool:
        asked.append(trips)
        return trips.processed == 7

    asyncio.run(names["until"](done))
    assert (asked, cycles) == ([counted], [])
