"""What a test sees of a live session in the browser: its recording, in which cycles are counted, and its controls."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.lab import Notebook

PATIENCE_S = 120  #: for what takes as long as the machine takes
LOOK_MS = 100
GRABS = 300  #: with a pause of LOOK_MS after each
Line = dict[str, Any]

#: Keeps each text that the line under the controls has, also those that are there for a moment only.
LISTEN = """() => {
    const line = document.querySelector('.widget-html-content [role=status]').closest('.widget-html');
    window.said = [];
    new MutationObserver(() => {
        const text = line.textContent.trim();
        if (text && text !== window.said.at(-1)) window.said.push(text);
    }).observe(line, { subtree: true, childList: true, characterData: true });
}"""


class Run:
    """A recording that is being written."""

    def __init__(self, path: Path, page: Any) -> None:
        self._path, self._page = path, page

    @property
    def lines(self) -> list[Line]:
        """The cycles so far; what only carries late events is none."""
        if not self._path.exists():
            return []
        whole = self._path.read_text("utf-8").rpartition("\n")[0].splitlines()
        return [line for line in map(json.loads, whole) if not line.get("repeated")]

    @property
    def cycle(self) -> int:
        """The number of the last cycle; 0 before the first."""
        return max((line["cycle"] for line in self.lines), default=0)

    def until(self, what: str, condition: Callable[[Line], object], after: int = 0, within: int | None = None) -> Line:
        """The first cycle after number `after` of which `condition` is true, at most `within` cycles after it."""
        for _ in range(PATIENCE_S * 1000 // LOOK_MS):
            later = [line for line in self.lines if line["cycle"] > after]
            found = next((line for line in later if condition(line)), None)
            if found is not None:
                assert within is None or found["cycle"] <= after + within, (
                    f"{what}: after {found['cycle'] - after} cycles"
                )
                return found
            assert within is None or self.cycle <= after + within, f"not within {within} cycles: {what}"
            self._page.wait_for_timeout(LOOK_MS)
        pytest.fail(f"not within {PATIENCE_S} s: {what}; last: {json.dumps(self.lines[-1:])[:3000]}")


class Controls:
    """The panel under the dashboard."""

    def __init__(self, notebook: Notebook) -> None:
        self.page = notebook.page
        self.page.wait_for_selector(".widget-html-content [role=status]")
        self.page.evaluate(LISTEN)
        self._heard, self._last = 0, ""  #: how many of the texts were looked at, and the command of the last

    def tab(self, name: str) -> None:
        """Open one of its tabs."""
        self.page.get_by_role("tab", name=name, exact=True).click()

    def slider(self, label: str) -> Any:
        """The slider with this label."""
        return self.page.locator(".widget-hslider").filter(has_text=label)

    def drag(self, label: str, share: float) -> float:
        """Drag a slider to this share of its way with the mouse; the number beside it then."""
        slider, mouse = self.slider(label), self.page.mouse
        for _ in range(GRABS):  # a cell's output may move the page between the look and the press
            slider.scroll_into_view_if_needed()
            handle = slider.locator(".noUi-handle").bounding_box()
            y = handle["y"] + handle["height"] / 2
            mouse.move(handle["x"] + handle["width"] / 2, y)
            mouse.down()
            if slider.locator(".noUi-handle.noUi-active").count():
                break
            mouse.up()
            self.page.wait_for_timeout(LOOK_MS)
        else:
            pytest.fail(f"{label}: its handle can't be grabbed")
        way = slider.locator(".noUi-base").bounding_box()
        mouse.move(way["x"] + share * way["width"], y, steps=6)
        mouse.up()
        return self.number(label)

    def number(self, label: str) -> float:
        """The number beside a slider."""
        text = self.slider(label).locator(".widget-readout").inner_text()
        number = float(re.sub(r"[^\d.]", "", text))
        return number / 100 if "%" in text else number

    def press(self, button: str) -> None:
        """Press a button; the glyph of an icon may come before its words."""
        self.page.get_by_role("button", name=re.compile(rf"(^|\W){button}$")).click()

    def choose(self, label: str, option: str) -> None:
        """Choose from the list with this label."""
        self.page.locator(f'.widget-dropdown:has(label:text-is("{label}")) select').select_option(option)

    def fill(self, label: str, number: int) -> None:
        """Write a number into the first field with this label."""
        field = self.page.locator(f'.widget-text:has(label:text-is("{label}")) input').first
        field.fill(str(number))
        field.press("Enter")

    def beside(self, label: str, box: str) -> Any:
        """The box to check that stands in one row with a slider."""
        row = self.page.locator(".widget-hbox", has=self.slider(label))
        return row.locator(".widget-checkbox", has_text=box).locator("input")

    def answered(self, words: str) -> str:
        """What is said of the next command with these words, once it is done or refused: first that it is pending."""
        from playwright.sync_api import TimeoutError as NoAnswer

        find = f"""words => window.said.findIndex(
            (said, i) => i >= {self._heard} && said.includes(words) && !said.endsWith(': pending'))"""
        try:
            self.page.wait_for_function(f"words => ({find})(words) >= 0", arg=words, timeout=PATIENCE_S * 1000)
        except NoAnswer as error:
            raise AssertionError(f"no answer to {words!r}; said was {self.page.evaluate('window.said')}") from error
        position, said = self.page.evaluate(find, words), self.page.evaluate("window.said")
        what, _, answer = re.fullmatch(r"(.*)(: )((?:done|refused).*)", said[position]).groups()
        assert f"{what}: pending" in said[self._heard : position] or self._last == what, said
        self._heard, self._last = position + 1, what
        return answer
