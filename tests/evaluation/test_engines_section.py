from __future__ import annotations

from typing import Any

from benchmarks.evaluation.engines_section import engines_section
from benchmarks.evaluation.row import BATCHED, DEFAULT, PAPERS, REACTIVE, REALTIME


def phase(accuracy: float, age_ms: float | None = 100.0) -> dict[str, Any]:
    return {
        "waiting_rows": 100,
        "accuracy": {"TDSnk1": accuracy, "TDSnk2": 1.0},
        "end_to_end_ms": {} if age_ms is None else {"TDSnk2": {"p50": age_ms, "p95": age_ms, "p99": age_ms}},
        "inside_ms": {},
    }


def run(**engines: dict[str, Any]) -> dict[str, Any]:
    names = {"papers": PAPERS, "reactive": REACTIVE, "batched": BATCHED, "default": DEFAULT, "realtime": REALTIME}
    return {
        "engines": {names[name]: {"3x": figures} for name, figures in engines.items()},
        "rows_per_s": {"3x": 1000.0},
        "rows_per_batch": None,
        "flink_carries": None,
        "left_out": {},
        "fused": True,
    }


def test_what_the_mode_makes_of_it_is_told_by_the_medians() -> None:
    runs = [run(papers=phase(0.5), reactive=phase(each, 90.0), batched=phase(1.0, 2000.0)) for each in (0.1, 0.3, 0.2)]
    text, _ = engines_section(runs)
    assert "keeps 1.00 of its rows at 3x in micro-batches and 0.20 in real-time mode" in text
    assert "are 2.0 s and 0.1 s old in the median" in text
    assert "the query is started again" in text


def test_the_default_is_set_beside_real_time_mode() -> None:
    text, rows = engines_section([run(papers=phase(0.5), default=phase(0.9, 800.0), realtime=phase(0.3, 90.0))])
    assert "keeps 0.90 of its rows at 3x in micro-batches and 0.30 in real-time mode" in text
    assert "- `default`: ours without an option" in text
    assert "started again" not in text
    kept = {row.of: row.middle for row in rows if row.what.startswith("accuracy at 3x")}
    assert kept[DEFAULT] > 1 > kept[REALTIME]


def test_where_the_modes_were_not_compared_nothing_is_told_of_them() -> None:
    both = run(papers=phase(0.5), reactive=phase(0.2, None), batched=phase(1.0, None))
    for runs in ([run(papers=phase(0.5), reactive=phase(0.2))], [both]):
        text, _ = engines_section(runs)
        assert "real-time mode, which updates" not in text
