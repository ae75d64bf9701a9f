"""What the page does for all views, with a model of its own in the place of JupyterLab's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from qod_widgets.watched import STATIC

#: A model that keeps what is sent, and by which listeners; times go by as told.
MODEL = """
window.sent = [];
window.listeners = {};
window.ended = false;
window.restarted = false;
window.model = {
    send: message => {
        if (window.restarted) throw new Error("Cannot send");
        window.sent.push(message.kind);
    },
    on: (event, listener) => (window.listeners[event] ??= new Set()).add(listener),
    off: (event, listener) => window.listeners[event].delete(listener),
    get: name => window[name],
};
window.open_ = () => new Live(window.model, { heard: () => {}, again: () => {}, left: () => {}, themed: () => {} });
"""
LISTENERS = "Object.values(window.listeners).reduce((sum, each) => sum + each.size, 0)"
MINUTE_MS = 60_000


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page with the code that widgets share. At the end nothing may have been thrown in it."""
    made = browser.new_page()
    errors: list[str] = []
    made.on("pageerror", lambda error: errors.append(str(error)))
    made.clock.install()
    made.add_script_tag(content=(STATIC / "common.js").read_text("utf-8") + MODEL)
    yield made
    made.close()
    assert errors == []


def test_a_view_says_that_it_is_open_until_it_is_answered_and_then_each_minute_until_the_end(page: Any) -> None:
    page.evaluate("window.live = open_()")
    page.clock.run_for(1000)
    page.clock.run_for(2000)
    assert page.evaluate("sent") == ["open"] * 3
    page.evaluate("live.heard({ fresh: true })")
    page.clock.run_for(MINUTE_MS - 1000)
    assert page.evaluate("sent.length") == 3
    page.clock.run_for(3 * MINUTE_MS)
    assert page.evaluate("sent.length") == 6
    page.evaluate("live.heard({ fresh: true })")  # as a new one
    page.clock.run_for(2 * MINUTE_MS)
    assert page.evaluate("sent.length") == 8
    page.evaluate("window.ended = true")
    page.clock.run_for(10 * MINUTE_MS)
    assert page.evaluate("sent.length") == 8
    page.evaluate("live.close()")
    assert page.evaluate("sent.at(-1)") == "close"


def test_after_the_kernel_began_anew_a_view_closes_and_leaves_nothing_behind(page: Any) -> None:
    page.evaluate("window.live = open_()")
    page.evaluate("window.restarted = true")
    page.clock.run_for(MINUTE_MS)  # what it says again can't be sent
    assert page.evaluate(LISTENERS) == 3
    page.evaluate("live.close()")
    assert page.evaluate(LISTENERS) == 0
    assert page.evaluate("sent") == ["open"]
    page.evaluate("window.restarted = false; window.dispatchEvent(new Event('pagehide'))")
    assert page.evaluate("sent") == ["open"]
