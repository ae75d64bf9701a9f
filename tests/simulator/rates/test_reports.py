"""What instances say of themselves, and when it can be seen."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simulator.rates.scenarios import Lab


@pytest.mark.parametrize(("report_s", "delay_s"), [(5.0, 0.25), (1.0, 0.0), (2.0, 3.0)])
def test_windows_are_a_period_long_or_two_end_at_a_report_and_are_seen_late(report_s: float, delay_s: float) -> None:
    lab = Lab(metrics={"report_s": report_s, "delay_s": delay_s})
    reports, engine = lab.cluster.reports, lab.cluster.engine
    ends: list[np.ndarray] = []
    for _ in range(160):
        lab.wait(0.25)
        start, end = reports.window_from.at, reports.window_to.at
        seen = reports.seen
        assert seen.tolist() == (end > 0).tolist()
        length = (end - start)[seen]
        assert (length <= (report_s if report_s >= 5.0 else 10.0 + report_s) + 1.0).all()
        if engine.now > 15 + delay_s:
            assert (length >= 5.0 - 1e-9).all()
            age = engine.now - end
            assert (delay_s <= age + 1e-9).all()
            assert (age < delay_s + report_s + 0.5).all()
        if not ends or (ends[-1] != end).any():
            ends.append(end.copy())
            first = 0
            for i in np.flatnonzero(seen).tolist():
                rows = reports.window_to.kept[first + i] - reports.window_from.kept[first + i]
                assert rows <= (end - start)[i] * 400 + 400
    assert len(ends) >= 30 / report_s


def test_instances_report_at_instants_of_their_own() -> None:
    lab = Lab(metrics={"report_s": 5.0}, step_s=0.05)
    lab.wait(12)
    assert len(set(lab.cluster.reports.window_to.at.tolist())) == 3


def test_books_go_by_commits_and_lag_by_what_waits() -> None:
    lab = Lab(metrics={"report_s": 5.0})
    lab.wait(20)
    processed = set()
    for _ in range(40):
        seen = lab.wait(0.25)
        count = seen.measured.counts["src"]
        processed.add(count.processed)
        assert seen.measured.lag["src"] <= count.waiting <= 5.5 * 400
        assert seen.measured.lag["src"] <= 100
    assert len(processed) <= 3
