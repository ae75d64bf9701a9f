from __future__ import annotations

from qod_widgets.charts import PALETTE, edge_colours, task_colours, tint


def test_ten_tasks_have_ten_colours_and_the_next_ten_lighter_ones() -> None:
    names = [f"T{n}" for n in range(20)]
    colours = task_colours(names)
    assert tuple(colours.values())[:10] == PALETTE
    assert len(set(colours.values())) == 20


def test_a_source_has_its_task_s_colour_and_the_streams_into_a_task_differ() -> None:
    tasks, edges = ("S1", "S2", "A"), ("S1", "S2", "S1>A", "S2>A")
    colours = edge_colours(edges, tasks)
    assert (colours["S1"], colours["S2"]) == (PALETTE[0], PALETTE[1])
    assert colours["S1>A"] == PALETTE[2]
    assert len(set(colours.values())) == 4


def test_a_tint_goes_from_the_colour_to_white() -> None:
    assert tint("#0072b2", 0) == "#0072b2"
    assert tint("#0072b2", 1) == "#ffffff"
    assert tint("#000000", 0.5) == "#808080"
