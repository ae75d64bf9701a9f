"""The dashboard of a recording, as somebody sees it who runs the first cells of lab 3."""

from __future__ import annotations

import re

import pytest

from tests.browser.lab import RUNNING
from tests.texts import tells

THEMES = ("light", "dark")
FACTS = ".qod-dashboard .qod-facts"
#: A recording whose query TDSnk1 has latencies, a target, and late rows.
TIMED = """\
import qod_magics
from qod_widgets.dashboard import Dashboard

known = {"p50": 0.035, "p95": 1.25, "target": 1.0, "oldest": 12.0, "late": 1234}
frames = [
    {**frame, "tasks": [{**task, **(known if task["id"] == "TDSnk1" else {})} for task in frame["tasks"]]}
    for frame in qod_magics.replay("data/taxi_drives.jsonl").frames
]
Dashboard("timed", frames)
"""
#: A recording of policy auto: the stage judge is paused, TDSnk1 gets a third instance in the last cycle.
STAGED = """\
import json
import qod_magics

with open("data/taxi_drives.jsonl") as file:
    lines = list(map(json.loads, file))[-3:]
for line in lines:
    line["policy"] = "auto"
    line["plan"]["stages"] = {"scale": "waits: the last action settles for 10 s more", "place": " ".join(["why"] * 90)}
    for task in line["snapshot"]["tasks"]:
        task["max_parallelism"] = 8
        if task["id"] == "TDSnk1":
            task["fused"] = ["zones>hours", "hours>TDSnk1"]
lines[0]["events"].append({"kind": "stage-paused", "stage": "judge", "why": "stage judge proposes nothing from now on"})
last = lines[-1]["snapshot"]["instances"]
last.append({**next(each for each in last if each["id"] == "TDSnk1.2"), "id": "TDSnk1.3"})
with open("staged.jsonl", "w") as file:
    file.writelines(json.dumps(line) + "\\n" for line in lines)
qod_magics.replay("staged.jsonl")
"""
#: A recording, and a cycle after it that has no decision; then one that has.
STILL = """\
import qod_magics
from qod_widgets.dashboard import Dashboard

frames = qod_magics.replay("data/taxi_drives.jsonl").frames
lost = {"t": frames[-2]["t"], "kind": "task-manager-lost", "words": "tm1: its process ended"}
dashboard = Dashboard("still", frames[:-1])
dashboard.skip({"t": frames[-1]["t"], "cycle": 9, "words": "no task manager is up", "log": [lost]})
dashboard
"""
#: A subshell for widgets comes up later than a view of them, and a cell that runs until a file is there.
LATE_SUBSHELL = """\
import asyncio
import os
import qod_magics

handlers = get_ipython().kernel.control_handlers
create = handlers["create_subshell_request"]

async def create_late(*request):
    await asyncio.sleep(4)
    return await create(*request)

handlers["create_subshell_request"] = create_late
qod_magics.replay("data/taxi_drives.jsonl")
"""
LONG = """\
while not os.path.exists("seen"):
    await asyncio.sleep(0.1)
"""
#: A recording in whose last cycles task managers have copies of slices of TDSnk1's results.
COPIES = """\
import qod_magics
from qod_widgets.dashboard import Dashboard

frames = qod_magics.replay("data/taxi_drives.jsonl").frames
on_tm2 = {12: {"tm2": 0.25}, 13: {"tm2": None}}
slices = [
    {"query": "TDSnk1", "written": f"10:{n:02}:00", "mb": {"tm1": 0.5, **on_tm2.get(n, {})}} for n in range(14)
]
shown = {-3: slices[:7], -2: slices, -1: slices}
Dashboard("copies", [*frames[:-3], *({**frames[at], "slices": each} for at, each in shown.items())])
"""
NONE = "\N{EN DASH}"
GOES_ON = """dashboard.feed({**frames[-1], "log": [lost]})"""
WIDTHS = """[...document.querySelectorAll('figure:not([hidden]) .qod-chart')].map(
    slot => [slot.clientWidth, slot.querySelector('canvas').clientWidth])"""
OVERFLOW = """[...document.querySelectorAll(
    '.qod-dashboard, .qod-dashboard header, .qod-stages, .qod-stages li, .qod-plan, .widget-hbox')].filter(
    part => part.scrollWidth > part.clientWidth + 1).map(part => part.className)"""
#: Lines of text in the graph that reach beyond their box, or into the text beside them.
BEYOND = """[...document.querySelectorAll('.qod-task')].flatMap(task => {
    const box = task.querySelector('rect').getBBox(), beside = task.querySelector('.qod-instances');
    return [...task.querySelectorAll('text')].filter(text => {
        const line = text.getBBox();
        const right = text.matches('.qod-state') ? beside.getBBox().x : box.width;
        return line.x < 0 || line.x + line.width > right || line.y + line.height > box.height;
    }).map(text => text.textContent);
})"""
CUT = """[...document.querySelectorAll('.widget-label')].filter(
    label => label.scrollWidth > label.clientWidth + 1).map(label => label.textContent)"""


def fits(notebook):
    """Whether charts fill their slots and nothing is cut; a size that has just changed takes a moment to arrive."""
    charts = all(slot - 24 < canvas <= slot for slot, canvas in notebook.page.evaluate(WIDTHS))
    return charts and not notebook.page.evaluate(OVERFLOW) and not notebook.page.evaluate(CUT)


def seconds(facts):
    minutes, rest = re.match(r"(\d+):(\d+) since the start", facts).groups()
    return 60 * int(minutes) + int(rest)


@pytest.mark.parametrize("width", [1000, 1400])
def test_it_fills_its_page_in_either_theme(lab3, width):
    notebook = lab3(width)
    notebook.page.locator(".qod-numbers summary").click()
    for theme in THEMES:
        notebook.theme(theme)
        notebook.page.wait_for_timeout(2000)  # for the pictures
        notebook.until(lambda: fits(notebook))
        notebook.page.evaluate("document.querySelector('.qod-dashboard').scrollIntoView()")
        notebook.screenshot(f"dashboard-{width}-{theme}")
        notebook.screenshot(f"what-if-{width}-{theme}", notebook.page.locator(".qod-plan"))
        for slot, canvas in notebook.page.evaluate(WIDTHS):
            assert slot - 24 < canvas <= slot
        assert notebook.page.evaluate(OVERFLOW) == []
        assert notebook.page.evaluate(CUT) == []


def test_a_narrower_page_makes_narrower_charts(lab3):
    notebook = lab3(1400)
    before = max(canvas for _, canvas in notebook.page.evaluate(WIDTHS))
    notebook.page.set_viewport_size({"width": 1000, "height": 1900})
    smaller = f"Math.max(...({WIDTHS}).map(([, canvas]) => canvas)) < {before - 200}"
    notebook.page.wait_for_function(smaller)


def test_charts_change_while_it_plays(lab3):
    notebook = lab3()
    before = notebook.pixels()
    notebook.page.get_by_role("button", name="play").click()
    notebook.page.wait_for_function("document.querySelector('.qod-facts').textContent < '2'")
    assert notebook.until(lambda: all(one != other for one, other in zip(before, notebook.pixels(), strict=True)))
    during = notebook.pixels()
    assert notebook.until(lambda: notebook.pixels()[0] != during[0])
    notebook.page.get_by_role("button", name="pause").click()


def test_the_slider_moves_the_position(lab3):
    notebook = lab3()
    end = seconds(notebook.page.locator(FACTS).inner_text())
    notebook.page.locator(".noUi-handle").first.focus()
    for _ in range(5):
        notebook.page.keyboard.press("ArrowLeft")
    notebook.page.wait_for_function(
        f"!document.querySelector('{FACTS}').textContent.startsWith('{end // 60}:{end % 60:02}')"
    )
    assert seconds(notebook.page.locator(FACTS).inner_text()) < end


def test_what_if_changes_the_table(lab3):
    notebook = lab3()
    table = notebook.page.locator(".qod-plan")
    before = table.inner_text()
    handle = notebook.page.locator(".noUi-handle").nth(1)
    handle.focus()
    for _ in range(30):
        notebook.page.keyboard.press("ArrowRight")
    changed = "was => document.querySelector('.qod-plan').innerText !== was"
    notebook.page.wait_for_function(changed, arg=before)
    assert notebook.page.locator(".qod-plan .qod-other").count() > 0


def test_after_the_kernel_began_anew_the_cell_shows_it_again(lab3):
    notebook = lab3()
    notebook.restart()
    notebook.command("notebook:clear-all-cell-outputs")
    assert notebook.until(lambda: notebook.page.locator(".qod-dashboard").count() == 0)
    notebook.run(1)
    notebook.until_drawn()


def test_it_can_be_read_without_seeing_it(lab3):
    notebook = lab3()
    page = notebook.page
    assert page.get_by_role("region", name="taxi_drives.jsonl, a recording").count() == 1
    assert page.get_by_role("img", name="CPU by task manager").count() == 1
    decisions = page.get_by_role("log", name="Decisions, newest first").get_by_role("listitem")
    assert notebook.until(lambda: decisions.count() > 5)
    page.locator(".qod-numbers summary").focus()
    page.keyboard.press("Enter")
    table = page.get_by_role("table", name="Tasks in the last cycle")
    table.wait_for()  # drawn once the page has told that its place is open
    assert table.get_by_role("rowheader").all_inner_texts() == ["TDSrc1", "TDSrc2", "TDSnk1", "TDSnk2"]
    assert page.get_by_role("table", name="Desired accuracy").count() == 1
    assert page.evaluate("[...document.querySelectorAll('.qod-graph')].map(g => g.getAttribute('aria-label'))")[0]


def test_a_query_says_what_shedding_does_to_its_columns(labelled):
    words = "zone exact; trips of the rows kept only; groups of which no row is kept are missing"
    labelled.look_at(".qod-graph")
    titles = labelled.page.locator(".qod-task title").all_text_contents()
    assert [title.partition("\n")[2] for title in titles if "\n" in title] == [f"when rows are dropped: {words}"]
    labelled.page.locator(".qod-numbers summary").click()
    told = labelled.page.locator(".qod-labels")
    told.wait_for()
    assert told.locator("dt").all_inner_texts() == ["TDSnk1"]
    assert told.locator("dd").all_inner_texts() == [words]
    labelled.look_at(".qod-numbers")
    labelled.page.wait_for_timeout(500)  # for the picture
    labelled.screenshot("dashboard-labels")
    assert labelled.page.evaluate(OVERFLOW) == []


def test_task_managers_that_join_or_stand_by_are_told(labelled):
    labelled.look_at(".qod-chips")
    chips = labelled.page.locator(".qod-chips .qod-chip")
    chips.first.wait_for()
    assert chips.all_inner_texts()[-2:] == ["tm3 starting", "tm4 standby"]


def test_latencies_are_drawn_with_their_targets_once_they_are_known(opened):
    notebook = opened(TIMED, height=2600)
    notebook.run(0)
    notebook.look_at(".qod-latency canvas")
    assert notebook.page.locator(".qod-latency").is_visible()
    notebook.page.locator(".qod-numbers summary").click()
    table = notebook.page.get_by_role("table", name="Tasks in the last cycle")
    table.wait_for()
    (row,) = (text for text in table.get_by_role("row").all_inner_texts() if text.startswith("TDSnk1"))
    assert row.split("\t")[-5:] == ["35 ms", "1.25 s", "1.00 s", "12 s", "1,234+"]
    notebook.page.wait_for_timeout(500)  # for the picture
    notebook.screenshot("dashboard-latency")
    assert notebook.page.evaluate(OVERFLOW) == []


def test_it_opens_while_cells_run_whose_kernel_is_late_with_the_widgets_subshell(opened, folder):
    notebook = opened(LATE_SUBSHELL, LONG, height=1900)
    notebook.run_all()
    notebook.until_drawn()
    assert notebook.page.evaluate(RUNNING) == 1
    (folder / "notebooks" / "seen").touch()
    notebook.page.wait_for_function(f"{RUNNING} === 0")


def test_a_cycle_without_a_decision_says_why_until_the_next_one(opened):
    notebook = opened(STILL, GOES_ON, height=1200)
    notebook.run(0)
    notebook.look_at(".qod-notice")
    notice, states = notebook.page.locator(".qod-notice"), notebook.page.locator(".qod-states").first
    notice.wait_for()
    assert re.fullmatch(r".* \d+:\d\d: no task manager .*", notice.inner_text())
    idle = states.inner_text()
    assert idle
    told = notebook.page.locator(".qod-kind-task-manager-lost")
    assert told.count() == 1
    notebook.page.wait_for_timeout(500)  # for the picture
    notebook.screenshot("dashboard-still")
    assert notebook.page.evaluate(OVERFLOW) == []
    notebook.run(1)
    assert notebook.until(notice.is_hidden)
    assert states.inner_text() != idle
    assert told.count() == 1


def test_stages_and_instances_are_told_and_follow_the_position(opened):
    notebook = opened(STAGED, height=2600)
    notebook.run(0)
    notebook.look_at(".qod-stages li")
    page = notebook.page
    page.locator(".qod-numbers summary").click()
    table = page.get_by_role("table", name="Tasks in the last cycle")
    table.wait_for()
    for width in (1000, 1400):
        page.set_viewport_size({"width": width, "height": 2600})
        for theme in THEMES:
            notebook.theme(theme)
            page.wait_for_timeout(1500)  # for the pictures
            notebook.look_at(".qod-dashboard")
            notebook.screenshot(f"dashboard-stages-{width}-{theme}")
            assert page.evaluate(OVERFLOW) == page.evaluate(BEYOND) == []
            numbers = page.locator(".qod-numbers")
            assert numbers.evaluate("part => part.scrollWidth - part.clientWidth") <= 1
    stages = page.get_by_role("list", name="Stages of the policy, in the last cycle").get_by_role("listitem")
    told = [text.split("\n") for text in stages.all_inner_texts()]
    assert [name for name, _ in told] == ["place", "scale", "lend", "judge", "shed"]
    words = [words for _, words in told][1:]
    assert tells(words[0], "waits", "10 s")
    assert words[2] == "paused"
    assert tells(words[3], "TDSnk1", "0.20", "TDSnk2", "0.40")
    assert stages.locator(".qod-chip").all_inner_texts() == ["paused"]
    counts = page.locator(".qod-graph .qod-instances")
    one, many = "1 instance (max 8)", "{} instances (max 8)"
    assert counts.all_text_contents() == [one, one, many.format(3), one]
    (within,) = page.locator(".qod-graph .qod-within").all_text_contents()
    assert "zones → hours → TDSnk1" in within
    cells = [row.split("\t") for row in table.get_by_role("row").all_inner_texts()]
    column = cells[0].index("instances")
    assert [row[column] for row in cells[1:]] == ["1 (max 8)", "1 (max 8)", "3 (max 8)", "1 (max 8)"]
    assert page.locator(".qod-fused dd").all_inner_texts() == ["zones → hours → TDSnk1"]
    page.locator(".noUi-handle").first.focus()
    page.keyboard.press("ArrowLeft")
    assert notebook.until(lambda: counts.all_text_contents() == [one, one, many.format(2), one])


def test_a_policy_without_stages_shows_none(lab3):
    notebook = lab3()
    assert notebook.page.locator(".qod-stages").is_hidden()
    assert "Stages" not in notebook.page.locator(".qod-dashboard").inner_text()


def test_where_no_labels_are_known_none_are_told(lab3):
    notebook = lab3()
    notebook.page.locator(".qod-numbers").evaluate("part => { part.open = true }")
    table = notebook.page.get_by_role("table", name="Tasks in the last cycle")
    table.wait_for()
    assert notebook.page.locator(".qod-labels").count() == 0
    assert not [title for title in notebook.page.locator(".qod-task title").all_text_contents() if "\n" in title]


def test_each_tab_of_the_controls_has_room_for_its_labels(panel):
    for theme in THEMES:
        panel.theme(theme)
        for tab in ("Queries", "Shedders", "Task managers", "Controller"):
            panel.page.get_by_role("tab", name=tab).click()
            panel.page.wait_for_timeout(300)  # for the pictures
            panel.until(lambda: fits(panel))
            panel.screenshot(f"controls-{tab.lower().replace(' ', '-')}-{theme}")
            assert panel.page.evaluate(OVERFLOW) == []
            assert panel.page.evaluate(CUT) == []


def test_a_control_says_what_became_of_it(panel):
    panel.page.get_by_role("tab", name="Controller").click()
    panel.page.get_by_role("button", name="recommend only").click()
    panel.page.get_by_text("plans are only recommended: done").wait_for()


def test_copies_of_results_are_told_in_a_table_and_drawn(opened):
    notebook = opened(COPIES, height=3000)
    notebook.run(0)
    notebook.look_at(".qod-copies table")
    page = notebook.page
    table = page.get_by_role("table", name="Slices of results in memory")
    table.wait_for()
    rows = [row.split("\t") for row in table.get_by_role("row").all_inner_texts()]
    managers = rows[0][3:]
    assert (rows[0][:3], managers[:2]) == (["query", "written", "copies"], ["tm1", "tm2"])
    assert [row[:5] for row in rows[1:4]] == [
        ["TDSnk1", "10:13:00", "2", "0.50 MB", "loading"],
        ["TDSnk1", "10:12:00", "2", "0.50 MB", "0.25 MB"],
        ["TDSnk1", "10:11:00", "1", "0.50 MB", NONE],
    ]
    assert len(rows) == 1 + 12 + 1
    assert rows[-1][:5] == ["in all", "2 older", "16", "14 · 7.00 MB", "2 · 0.25 MB"]
    notebook.look_at("figure.qod-slices")  # a chart is drawn once it is in sight
    page.locator("figure.qod-slices canvas").wait_for()
    assert page.locator("figure.qod-slices").is_visible()
    for theme in THEMES:
        notebook.theme(theme)
        page.wait_for_timeout(1500)  # for the picture
        notebook.look_at(".qod-copies table")
        notebook.screenshot(f"dashboard-copies-{theme}")
        assert page.evaluate(OVERFLOW) == []


def test_without_copies_nothing_is_told_of_them(lab3):
    page = lab3().page
    assert not page.locator("figure.qod-slices").is_visible()
    assert not page.locator("div.qod-copies").is_visible()
