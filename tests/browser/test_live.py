"""Lab 1 as somebody runs it: real Kafka and Spark, a browser, every control, and an end in the middle of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.browser.lab import RUNNING, Notebook, jupyterlab
from tests.browser.live import Controls, Line, Run
from tests.live.kernel import Household, Traces, lingering

pytestmark = pytest.mark.live

LAB = "lab1_first_stream.ipynb"
GO_ON = "go-on"  #: the file that the cell with the overload waits for, so that the lab goes on when the test has looked
#: The recording where it is found, an overload that outlasts the cells, and the lab's own lengths shortened.
OTHERWISE = {
    "--kafka-cpus $last_core": "--kafka-cpus $last_core --record run.jsonl",
    "max(round(60 * scale), 40)": "900",
    "await qod.watch(length / 2)": f"while not os.path.exists({GO_ON!r}):\n    await qod.watch(1)",
    "length / 3": "10",
}
LAST = "%qod down"  #: the cell that is left out: the session ends with its kernel
FAILED = "[data-mime-type='application/vnd.jupyter.error']"


def shortened(folder: Path) -> str:
    """A copy of the lab beside it; its name."""
    book = nbformat.read(folder / LAB, 4)
    book.cells = [cell for cell in book.cells if cell.source != LAST]
    for words, others in OTHERWISE.items():
        (cell,) = (cell for cell in book.cells if words in cell.source)
        cell.source = cell.source.replace(words, others)
    nbformat.write(book, folder / "lab1.ipynb")
    return "lab1.ipynb"


@pytest.fixture
def household() -> Iterator[Household]:
    with closing(Household()) as made:
        yield made


@pytest.fixture
def lab1(browser: Any, household: Household, tmp_path: Path) -> Iterator[Notebook]:
    """The lab in a JupyterLab whose kernels, with all that they start, belong to `household`."""
    with jupyterlab(tmp_path, {**household.environment, "QOD_DEMO_SCALE": "0.5"}) as address:
        page = browser.new_page(viewport={"width": 1400, "height": 1900})
        yield Notebook(page, address % shortened(tmp_path / "notebooks"))
        page.close()


def restrictions(line: Line, query: str) -> tuple[float, int]:
    """Minimum accuracy and priority of a query."""
    (task,) = (task for task in line["snapshot"]["tasks"] if task["id"] == query)
    return task["min_accuracy"], task["priority"]


def dial(line: Line, source: str, target: str) -> float:
    """The non-drop probability of a stream."""
    (d,) = (row["d"] for row in line["dials"]["keep"] if (row["from"], row["to"]) == (source, target))
    return d


def managers(line: Line) -> list[str]:
    return [manager["id"] for manager in line["snapshot"]["task_managers"]]


@pytest.mark.timeout(900)
def test_lab_1(lab1: Notebook, household: Household, tmp_path: Path) -> None:
    before = household.look()
    run = Run(tmp_path / "notebooks" / "run.jsonl", lab1.page)
    lab1.run_all()
    lab1.look_at(".qod-dashboard")
    lab1.until_drawn()
    charts_move(lab1, run)
    controls = Controls(lab1)
    a_plan_follows_the_slider(lab1, controls, run)
    (tmp_path / "notebooks" / GO_ON).touch()
    for theme in ("dark", "light"):
        lab1.theme(theme)
        lab1.page.wait_for_timeout(2000)
        lab1.look_at(".qod-dashboard")
        lab1.screenshot(f"live-{theme}")
    the_loop_is_steered(controls, run)
    a_shedder_is_held_by_hand(controls, run)
    task_managers_come_and_go(lab1, controls, run)
    lab1.page.wait_for_function(f"{RUNNING} === 0", timeout=120_000)
    assert lab1.page.locator(FAILED).count() == 0
    controls.tab("Queries")
    assert controls.number("speeds: at least") == 0.3, "the lab has set it meanwhile, by a magic"
    during = household.look()
    lab1.restart()
    assert len(during.left(before)) > 5, "the look sees what there is"
    assert lingering(household.look, before | Traces.of(household.kernel()), during) == []
    lab1.page.get_by_text("its kernel is gone").wait_for()
    assert lab1.errors == []


def charts_move(lab1: Notebook, run: Run) -> None:
    facts = ".qod-dashboard .qod-facts"
    said, seen, cycle = lab1.page.locator(facts).inner_text(), lab1.pixels(), run.cycle
    run.until("two more cycles", lambda _: True, after=cycle + 1)
    lab1.page.wait_for_function(f"was => document.querySelector('{facts}').textContent !== was", arg=said)

    def changed() -> bool:
        """All that were seen, whichever joined them meanwhile: that of the latencies is drawn once some are known."""
        now = lab1.pixels()
        return len(now) >= len(seen) and set(seen).isdisjoint(now)

    assert lab1.until_in_sight(changed)


def a_plan_follows_the_slider(lab1: Notebook, controls: Controls, run: Run) -> None:
    """While a cell runs, which says nothing of it."""
    run.until("the overload", lambda line: line.get("phase") == "overload" and line["plan"]["desired"]["speeds"] < 0.45)
    assert lab1.page.evaluate(RUNNING) > 0
    least = controls.drag("speeds: at least", 0.55)
    assert 0.45 < least < 0.7
    cycle = run.cycle
    assert controls.answered(f"speeds at least {least:.0%}") == "done"
    run.until("the plan", lambda line: line["plan"]["desired"]["speeds"] >= least - 1e-9, after=cycle, within=2)
    assert lab1.page.evaluate(RUNNING) > 0


def the_loop_is_steered(controls: Controls, run: Run) -> None:
    controls.tab("Controller")
    period = controls.drag("decide every, s", 0.04)
    assert period < 4
    assert controls.answered("a period of") == "done"
    run.until("the period", lambda line: line["period_s"] == period, after=run.cycle)
    controls.press("recommend only")
    assert controls.answered("plans are only recommended") == "done"
    run.until("a plan that is not applied", lambda line: not line["applied"], after=run.cycle)
    controls.press("recommend only")
    assert controls.answered("plans are applied") == "done"
    run.until("a plan that is applied", lambda line: line["applied"], after=run.cycle)
    controls.tab("Queries")
    controls.fill("priority", 5)
    assert controls.answered("fares priority 5") == "done"
    run.until("the priority", lambda line: restrictions(line, "fares")[1] == 5, after=run.cycle, within=2)


def a_shedder_is_held_by_hand(controls: Controls, run: Run) -> None:
    controls.tab("Shedders")
    by_hand = controls.beside("rides → speeds", "by hand")
    by_hand.check()
    assert controls.answered("rides → speeds") == "done"
    d = controls.drag("rides → speeds", 0.21)
    assert 0 < d < 0.4
    assert controls.answered(f"rides → speeds: d = {d:.2f} by hand") == "done"
    run.until("the dial", lambda line: abs(dial(line, "rides", "speeds") - d) < 0.005, after=run.cycle)
    assert by_hand.is_checked()
    by_hand.uncheck()
    assert controls.answered("rides → speeds: automatic") == "done"
    run.until("the dial given back", lambda line: abs(dial(line, "rides", "speeds") - d) > 0.005, after=run.cycle)


def task_managers_come_and_go(lab1: Notebook, controls: Controls, run: Run) -> None:
    """With plans that are only recommended, so that nothing else moves."""
    controls.tab("Controller")
    controls.press("recommend only")
    assert controls.answered("plans are only recommended") == "done"
    controls.tab("Task managers")
    controls.press("add a task manager")
    assert controls.answered("another task manager") == "done, tm2"
    run.until("the second task manager", lambda line: managers(line) == ["tm1", "tm2"], after=run.cycle)
    controls.choose("to", "tm2")  # first: the recording has the cycle before the lists have its task managers
    controls.choose("move", "speeds.1")
    controls.press("move it")
    assert controls.answered("speeds.1 to tm2") == "done"
    lab1.screenshot("live-two-task-managers")
    controls.choose("remove", "tm2")
    controls.press("remove it")
    controls.press("remove it")
    assert controls.answered("tm2 goes") == "done"
    assert controls.answered("tm2 goes").startswith("refused, There is no task manager 'tm2'")
    run.until("one task manager", lambda line: managers(line) == ["tm1"], after=run.cycle)
