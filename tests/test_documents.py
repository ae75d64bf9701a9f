"""What the documents name is there: files, headings, modules."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`")


def documents() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def anchors(text: str) -> set[str]:
    """The anchors that a page gives to the headings of a document."""
    found = [re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()) for line in text.splitlines() if line[:1] == "#"]
    return {each.replace(" ", "-") for each in found}


def broken(document: Path, text: str) -> list[str]:
    """The links of a document to files or headings that are not there."""
    found = []
    for link in LINK.findall(text):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = document if not path else (document.parent / path).resolve()
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            found.append(link)
    return found


def test_links_lead_to_files_and_headings() -> None:
    found = {path.name: broken(path, path.read_text("utf-8")) for path in documents()}
    assert len(found) > 4
    assert {name: links for name, links in found.items() if links} == {}


@pytest.mark.parametrize("link", ["no-such-file.md", "README.md#no-such-heading", "#nor-this"])
def test_the_search_for_broken_links_finds_them(link: str) -> None:
    assert broken(ROOT / "README.md", f"see [it]({link}), [this](README.md#limits) and [that](sc://x)") == [link]


def test_the_modules_and_packages_that_the_map_of_the_code_names_are_there() -> None:
    text = (ROOT / "docs" / "code.md").read_text("utf-8")
    named = NAMED.findall(text)
    assert len(named) > 20
    assert [name for name in named if not any((base / name).exists() for base in (ROOT, ROOT / "qod_magics"))] == []
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    packages = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    of = ("", "application/", "spark/", "simulator/", "policies/stream_economics/")
    there = {path.parent.name for each in of for path in (ROOT / "qod_magics").glob(f"{each}*/__init__.py")}
    assert packages - {"widgets", "qod_widgets"} == there
