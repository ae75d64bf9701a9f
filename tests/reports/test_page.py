from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser

import pytest

from qod_magics.recordings.criteria import Criterion
from qod_magics.recordings.verdict import verdict
from qod_magics.reports.page import report, write_report
from tests.recordings.taxi_drives import records, taxi_drives
from tests.texts import tells

VOID = {"meta", "br", "link", "img", "hr"}


class Page(HTMLParser):
    """Its elements, its text, and whether every tag is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def blank(_: object) -> str:
    """A chart, where only the tables are looked at."""
    return "<svg></svg>"


@cache
def full() -> str:
    run, off = records(taxi_drives()), records(taxi_drives(controlled=False))
    return report(run, off, verdict(run, off), "Taxi Drives")


def test_the_page_is_well_formed_and_has_its_charts_in_it() -> None:
    page = Page(full())
    assert page.open == []
    assert [tag for tag, _ in page.tags].count("svg") == 7
    assert "Taxi Drives" in page.words


def test_latencies_and_rows_behind_a_watermark_are_told_where_they_are_known() -> None:
    assert "watermark" not in full()
    lines = taxi_drives()[:20]
    for line in lines:
        for task in line["snapshot"]["tasks"]:
            if task["id"] == "TDSnk1":
                task |= {"latency_p50_s": 0.02, "max_latency_s": 0.04, "oldest_s": 12.0}
    for line in lines[10:]:
        line["measured"]["late"] = {"TDSnk1": 1234}
        line["measured"]["counts"]["TDSrc1"]["tombstones"] = 77
    words = Page(report(records(lines), None, [], svg=blank)).words
    start = words.index("Latencies")
    assert words[start:].index("TDSnk1") > 0
    assert {"20 ms", "50 ms", "40 ms", "12 s"} <= set(words)
    assert any(word.startswith("100%") for word in words)
    assert any("1,234 of TDSnk1" in each for each in words)
    assert {"tombstones", "77"} <= set(words)
    assert "implausible" not in words


def test_the_page_needs_nothing_else() -> None:
    text = full()
    tags = {tag for tag, _ in Page(text).tags}
    assert tags.isdisjoint({"script", "link", "img", "iframe", "object"})
    assert set(re.findall(r'https?://[^"\s<)]+', text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "@import" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\([\"']?([^)\"']*)", text))


def test_ids_are_unique_and_all_that_is_referred_to_is_there() -> None:
    ids = re.findall(r'\bid="([^"]+)"', full())
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\([\"']?#([^)\"']*)", full())) <= set(ids)


def test_the_verdict_comes_first() -> None:
    text = full()
    assert "Verdict: 9 of 9 criteria pass" in text
    assert text.index("Verdict") < text.index("<svg")
    assert text.count('<tr class="pass">') == 9


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is in the file of a short run, of which nothing was recorded with the controller off."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    write_report(out, records(taxi_drives()[:3]), None, [Criterion("a → b", True, "…"), Criterion("b", False, "2")])
    return out.read_text(encoding="utf-8")


def test_the_file_is_written_whole(written: str) -> None:
    assert written.startswith("<!DOCTYPE html>")
    assert written.endswith("</html>\n")
    assert "a → b" in written


def test_a_failure_is_seen(written: str) -> None:
    assert "Verdict: 1 of 2 criteria pass" in written
    assert '<tr class="fail"><td>FAIL</td>' in written


def test_without_a_run_to_compare_with_nothing_is_said_of_it(written: str) -> None:
    assert "With and without the controller" in full()
    assert "With and without the controller" not in written


def test_the_tables_tell_of_every_move_and_every_row() -> None:
    words = Page(full()).words
    counts = taxi_drives()[-1]["measured"]["counts"]
    assert any(tells(word, "tm1") for word in words)
    assert words.count("TDSnk1.2") == 1
    for edge, count in counts.items():
        assert edge.replace(">", " → ") in words
        assert f"{count['arrived']:,}" in words
        assert f"{count['dropped']:,}" in words


def test_without_moves_counts_and_comparison_it_says_so_or_says_nothing() -> None:
    lines = taxi_drives()[:4]
    for line in lines:
        line["measured"]["counts"] = line["measured"]["latency_s"] = {}
        for task in line["snapshot"]["tasks"]:
            task |= {"max_latency_s": 0.04} if task["id"] == "TDSnk1" else {}
    text = report(records(lines), records(taxi_drives(controlled=False)), [], svg=blank)
    page = Page(text)
    assert "Latencies" not in page.words
    assert [tag for tag, _ in page.tags].count("svg") == 6, "there is still a target"
    assert "No task instance" in text
    assert "Rows in" not in text
    assert "“overload”" in text


def test_what_users_and_clusters_wrote_is_text() -> None:
    evil = '<img src=x onerror="alert(1)">&'
    lines = taxi_drives()[:40]
    for line in lines:
        line["phase"] = evil
        for event in line["events"]:
            event["why"] = event["instance"] = evil
        for instance in line["snapshot"]["instances"]:
            instance["task"] = instance["task"].replace("TDSnk1", evil)
        for stream in line["snapshot"]["streams"]:
            stream["to"] = stream["to"].replace("TDSnk1", evil)
        for task in line["snapshot"]["tasks"]:
            task["id"] = task["id"].replace("TDSnk1", evil)
        for what in ("lag", "dropped", "counts", "accuracy", "input_rate"):
            line["measured"][what] = {k.replace("TDSnk1", evil): v for k, v in line["measured"][what].items()}
    text = report(records(lines), None, [Criterion(evil, False, evil)], evil)
    page = Page(text)
    assert page.open == []
    assert "img" not in {tag for tag, _ in page.tags}
    assert not [1 for _, attributes in page.tags if any(name.startswith("on") for name in attributes)]
    assert evil in page.words


def test_an_empty_recording_is_refused() -> None:
    with pytest.raises(ValueError, match="lines"):
        report([], None, [])
