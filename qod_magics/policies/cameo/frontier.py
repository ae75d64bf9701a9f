"""Frontier progress: where the window ends that a message feeds, (6) and (7). Times in one unit of event time."""

from __future__ import annotations


def frontier_progress(previous: int, progress: int, slide: int, origin: int = 0) -> int:
    """The earliest window end that a channel had not passed before a message (6).

    Args:
        previous: progress of the channel before the message; of its first message, the smallest event time in it
        progress: of the message
        slide: between two window ends of the target; 0: a regular operator, and the message's own progress is returned
        origin: of the grid of window ends

    """
    return origin + ((previous - origin) // slide + 1) * slide if slide else progress


def waits(frontier: int, progress: int) -> bool:
    """Whether a message may wait for others of its window: it completes none (7)."""
    return frontier > progress


def printed_frontier_progress(progress: int, slide: int, slide_of_sender: int) -> int:
    """Equation 5.4 as printed: it puts off the very message that completes a window (E1). For comparison only."""
    return (progress // slide + 1) * slide if slide_of_sender < slide else progress
