"""CPU and run time by batch out of Spark's list of stages."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from qod_magics.spark.servers.rest import applications, times_by_batch

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


def test_the_ui_of_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ui(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'[{"id": "app"}]')

        def log_message(self, *_: object) -> None:
            """Nothing on the console."""

    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Ui)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert applications(f"http://127.0.0.1:{server.server_port}") == ["app"]
    finally:
        server.shutdown()
        server.server_close()
