from __future__ import annotations

import threading

import pytest

from qod_magics.controller.runtime_calls import BoundedCall, InlineWorker, ThreadWorker

LONG_S = 30.0


@pytest.fixture(params=[ThreadWorker, InlineWorker])
def worker(request):
    worker = request.param("qod-test")
    yield worker
    worker.close()


def test_a_call_ends_with_its_value(worker):
    outcome = worker.begin(lambda: 7).wait(LONG_S)
    assert (outcome.value, outcome.error) == (7, None)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_a_call_ends_with_what_it_raised_whatever_that_is(worker, error):
    def call():
        raise error

    assert worker.begin(call).wait(LONG_S).error is error
    assert worker.begin(lambda: 7).wait(LONG_S).value == 7


def test_calls_are_made_on_one_thread_of_that_name():
    worker = ThreadWorker("qod-test")
    threads = {worker.begin(threading.current_thread).wait(LONG_S).value for _ in range(3)}
    assert [thread.name for thread in threads] == ["qod-test"]
    assert all(thread.daemon for thread in threads)
    worker.close()
    assert not any(thread.is_alive() for thread in threads)


def test_a_closed_worker_begins_again():
    worker = ThreadWorker("qod-test")
    worker.begin(lambda: 1).wait(LONG_S)
    worker.close()
    assert worker.begin(lambda: 2).wait(LONG_S).value == 2
    worker.close()


def test_an_errand_that_was_given_up_hands_its_outcome_out_once():
    let_go, worker = threading.Event(), ThreadWorker("qod-test")
    bounded = BoundedCall(worker)
    assert bounded.call(lambda: let_go.wait(LONG_S), 0.0) is None
    assert bounded.under_way
    assert bounded.late() is None
    with pytest.raises(RuntimeError):
        bounded.call(lambda: True, 0.0)
    let_go.set()
    while (outcome := bounded.late()) is None:
        let_go.wait(0.001)
    assert outcome.value is True
    assert bounded.late() is None
    assert bounded.call(lambda: 7, LONG_S).value == 7
    bounded.close()


def test_an_interrupt_ends_this_wait_and_the_next_ones_until_close():
    let_go, entered, worker = threading.Event(), threading.Event(), ThreadWorker("qod-test")
    bounded = BoundedCall(worker)

    def hang():
        entered.set()
        return let_go.wait(LONG_S)

    def interrupt():
        entered.wait(LONG_S)
        bounded.interrupt()

    helper = threading.Thread(target=interrupt)
    helper.start()
    assert bounded.call(hang, 1000.0) is None
    helper.join()
    let_go.set()
    while bounded.late() is None:
        let_go.wait(0.001)
    let_go.clear()
    assert bounded.call(lambda: let_go.wait(LONG_S), 1000.0) is None
    let_go.set()
    while bounded.late() is None:
        let_go.wait(0.001)
    bounded.close()
    assert bounded.call(lambda: 7, LONG_S).value == 7
    bounded.close()
