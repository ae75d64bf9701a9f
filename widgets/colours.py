"""One colour per task, the same in every chart of a run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

#: Distinguishable with any colour vision, and dark enough for lines on white (after Okabe and Ito).
PALETTE = ("#0072b2", "#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#b08d00", "#6a51a3", "#8c564b", "#17becf", "#7f7f00")
GREY = "#b8bdc4"  #: other processes
INK = "#30343b"  #: text, and lines that are not a task's
MUTED = "#6b7280"  #: axes, rules, secondary text
ALARM = "#b3261e"  #: limits, and the run without the controller
BAND = "#1f2a44"  #: every other phase, at a low opacity so that the grid shows


def task_colours(tasks: Sequence[str]) -> dict[str, str]:
    """A colour for each task by its position; beyond ten tasks they repeat, lighter."""
    return {
        task: tint(PALETTE[index % len(PALETTE)], min(0.35 * (index // len(PALETTE)), 0.7))
        for index, task in enumerate(tasks)
    }


def edge_colours(edges: Sequence[str], tasks: Sequence[str]) -> dict[str, str]:
    """A source has the colour of its task, a stream "from>to" a tint of its consumer's: lighter for each producer."""
    colours = task_colours(tasks)
    producers: dict[str, int] = {}
    found = {}
    for edge in edges:
        consumer = edge.rpartition(">")[2]
        colour = colours.get(consumer, GREY)
        if ">" in edge:
            nth = producers[consumer] = producers.get(consumer, -1) + 1
            colour = tint(colour, min(0.3 * nth, 0.75))
        found[edge] = colour
    return found


def tint(colour: str, share: float) -> str:
    """`colour` ("#rrggbb") mixed with white: 0 leaves it, 1 is white."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * share):02x}" for c in channels)
