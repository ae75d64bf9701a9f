"""CPU and run time by batch out of Spark's list of stages."""

from __future__ import annotations

import pytest

from qod_magics.spark.servers.stages import times_by_batch

RUN = "0a1b2c3d-0000-1111-2222-333344445555"


def stage(batch: int | None, cpu_s: float) -> dict[str, object]:
    description = f"TDSnk1.1\nid = {RUN[::-1]}\nrunId = {RUN}\nbatch = {batch}" if batch is not None else "collect at x"
    return {"description": description, "executorCpuTime": int(cpu_s * 1e9), "executorRunTime": int(cpu_s * 2e3)}


def test_the_stages_of_a_batch_are_added_up() -> None:
    found = times_by_batch([stage(7, 0.5), stage(8, 0.25), stage(7, 1.0)])
    assert found == {(RUN, 7): pytest.approx((1.5, 3.0)), (RUN, 8): pytest.approx((0.25, 0.5))}


def test_what_is_no_streaming_batch_is_left_out() -> None:
    assert times_by_batch([stage(None, 3.0), {"description": None, "executorCpuTime": 1}, {"executorCpuTime": 1}]) == {}


def test_real_time_batches_in_progress_are_no_batches_yet() -> None:
    assert times_by_batch([{"description": f"runId = {RUN}\nbatch = init", "executorCpuTime": 5}]) == {}
