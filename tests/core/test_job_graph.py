"""Job graphs, runtime graphs and sequences."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qod_magics.core.job_graph import Channel, JobConstraint, JobEdge, JobGraph, JobSequence, RuntimeGraph, Task
from qod_magics.errors import UsageProblem

JOB = JobGraph(("P", "D", "R"), (JobEdge("P", "D", "all-to-all"), JobEdge("D", "R", "pointwise")))
GRAPH = RuntimeGraph(JOB, {"P": ("w1",), "D": ("w1", "w2"), "R": ("w1", "w2")})


def test_channels_follow_from_the_patterns() -> None:
    assert [str(channel) for channel in GRAPH.all_channels()] == ["P1-D1", "P1-D2", "D1-R1", "D2-R2"]
    assert GRAPH.channels("P", "D") == 2
    assert GRAPH.receivers(Task("D", 1), "R") == (Task("R", 1),)
    assert GRAPH.senders(Task("D", 1), "P") == (Task("P", 0),)
    assert [GRAPH.outgoing(task) for task in (Task("P", 0), Task("D", 0), Task("R", 0))] == [2, 1, 0]
    assert [GRAPH.incoming(task) for task in (Task("P", 0), Task("D", 0), Task("R", 0))] == [0, 1, 1]
    assert Channel(Task("P", 0), Task("D", 1)) in set(GRAPH.all_channels())


@pytest.mark.parametrize(
    ("elements", "path", "flags"),
    [
        (["e(P,D)", "D", "e(D, R)"], ("P", "D", "R"), (False, False)),
        (["D", "e(D,R)"], ("D", "R"), (True, False)),
        (["e(P,D)", "D"], ("P", "D"), (False, True)),
        (["D"], ("D",), (True, True)),
    ],
)
def test_a_sequence_begins_and_ends_with_a_task_or_a_channel(
    elements: list[str], path: tuple[str, ...], flags: tuple[bool, bool]
) -> None:
    found = JobSequence.parse(elements)
    assert found == JobSequence(path, *flags)
    found.check(JOB)
    named = [vertex for i, vertex in enumerate(path) if found.is_element(i)]
    assert named == [element for element in elements if "(" not in element]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: JobSequence.parse([]), "empty"),
        (lambda: JobSequence.parse(["P", "D"]), '"D"'),
        (lambda: JobSequence.parse(["e(P,D)", "R"]), '"R"'),
        (lambda: JobSequence.parse(["e(P,D)", "e(D,R)"]), '"e(D,R)"'),
        (lambda: JobSequence.parse(["P", "e(P,D)"]).check(JOB), '"P"'),
        (lambda: JobSequence.parse(["e(D,R)", "R"]).check(JOB), '"R"'),
        (lambda: JobSequence.parse(["e(P,R)"]).check(JOB), "no edge"),
        (lambda: JobSequence.parse(["e(P,X)"]).check(JOB), 'job vertex "X"'),
        (lambda: JobConstraint(JobSequence(("D",)), 0), "limit_ms: 0"),
        (lambda: JobConstraint(JobSequence(("D",)), 1, float("inf")), "span_s"),
        (lambda: JobEdge("P", "D", "some"), '"some"'),  # type: ignore[arg-type]
        (lambda: JobGraph(("P",), (JobEdge("P", "D", "pointwise"),)), 'job vertex "D"'),
        (lambda: JobGraph(("P", "D"), (JobEdge("P", "D", "pointwise"),) * 2), "two edges"),
        (lambda: JobGraph(("P", "D"), (JobEdge("P", "D", "pointwise"), JobEdge("D", "P", "pointwise"))), "cycle"),
        (lambda: RuntimeGraph(JOB, {"P": ("w1",), "D": ("w1",)}), '"R"'),
        (lambda: RuntimeGraph(JOB, {"P": ("w1",), "D": ("w1",), "R": ("w1", "w1")}), "1 and 2"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(wrong: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        wrong()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
