"""What the documents name is there: files, headings, modules, commands and options."""

from __future__ import annotations

import importlib.util
import json
import pkgutil
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`")
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def documents() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


@cache
def hooks() -> ModuleType:
    """The build's hooks, a file outside of any package."""
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- links ------------------------------------------------------------------------------------------------------------


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
    found = {str(path.relative_to(ROOT)): broken(path, path.read_text("utf-8")) for path in documents()}
    assert len(found) > 15
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
    of = ("", "application/", "spark/", "simulator/", "simulator/rates/", "policies/stream_economics/")
    there = {path.parent.name for each in of for path in (ROOT / "qod_magics").glob(f"{each}*/__init__.py")}
    assert packages - {"widgets", "qod_widgets"} == there


def test_the_files_that_the_guide_for_contributors_names_are_there() -> None:
    named = NAMED.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


# --- commands and options ---------------------------------------------------------------------------------------------


@cache
def known() -> dict[str, frozenset[str]]:
    """The options of each command as their help gives them, by "%qod up", "python -m qod_magics demo" and the like."""
    found = {"%%qod_stream": frozenset({"--help", *OPTION.findall(hooks().stream_options())})}
    for written in (hooks().magics(), hooks().commands()):
        for part in re.split(r"^### ", written, flags=re.MULTILINE)[1:]:
            heading, _, text = part.partition("\n")
            found[heading] = frozenset({"--help", *OPTION.findall(text)})
    return found


@cache
def targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def code(text: str) -> Iterator[str]:
    """The pieces of code of a document: spans, and lines of its blocks without their comments."""
    for block in FENCE.findall(text):
        yield from (line.partition(" #")[0].strip() for line in block.splitlines())
    yield from SPAN.findall(FENCE.sub("", text))


def of_benchmarks(folder: str = "benchmarks") -> frozenset[str]:
    """The options that the scripts of a folder or the script of a path take."""
    path = ROOT / folder
    files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
    texts = [each.read_text("utf-8") for each in files if each.is_file()]
    return frozenset().union(*(re.findall(r'"(--[a-z][a-z-]*)"', text) for text in texts))


def notebook(path: Path) -> str:
    """A notebook as a document: its text, and its code in blocks."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    texts = {"markdown": "{}", "code": "```python\n{}\n```"}
    return "\n\n".join(texts[each["cell_type"]].format("".join(each["source"])) for each in cells)


def unknown(text: str) -> list[str]:
    """The pieces of code of a document that name a command, a target or an option that is not there."""
    return [piece for piece in code(text) if piece and not is_known(piece)]


def is_known(piece: str) -> bool:
    """Whether a piece of code is no command line, or one whose command and options are there."""
    words, options = piece.split(), set(OPTION.findall(piece))
    if words[0] == "make":
        return {word for word in words[1:] if "=" not in word} <= targets()
    if words[0] in ("%%qod_stream", "%qod_stream"):
        return options <= known()["%%qod_stream"]
    if words[0] == "%qod":
        of = known().get(" ".join(words[:2])) if len(words) > 1 and words[1] != "NAME" else frozenset()
        return of is not None and options <= of
    if words[:3] == ["python", "-m", "qod_magics"]:
        of = known().get(" ".join(words[:4])) if len(words) > 3 and words[3].islower() else frozenset({"--help"})
        return of is not None and options <= of
    if words[0] == "python" and "benchmarks" in piece:
        script = words[2].replace(".", "/") if words[1] == "-m" else words[1].removesuffix(".py")
        there = (ROOT / script).is_dir() or (ROOT / f"{script}.py").is_file()
        return there and options <= of_benchmarks(script)
    return words[0][:2] != "--" or words[0] in frozenset().union(*known().values(), of_benchmarks())


def test_the_commands_and_options_that_documents_name_are_there() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in documents()}
    texts |= {path.name: notebook(path) for path in (ROOT / "notebooks").glob("*.ipynb")}
    lines = [piece for text in texts.values() for piece in code(text) if re.match(r"make |%|python -m|--", piece)]
    assert len(lines) > 100
    assert {name: found for name, text in texts.items() if (found := unknown(text))} == {}


@pytest.mark.parametrize(
    "piece",
    [
        "make no-such-target",
        "%qod no-such-command",
        "%qod up --no-such-option",
        "%%qod_stream trips --topics trips",
        "python -m qod_magics demos",
        "python -m qod_magics demo --long-one",
        "python benchmarks/no_such.py",
        "python -m benchmarks.evaluation --no-such",
        "--no-such-option",
    ],
)
def test_the_search_for_unknown_commands_finds_them(piece: str) -> None:
    assert unknown(f"Say `%qod up --cores 1`, `make lab`, `{piece}` or `--sql`.") == [piece]
    assert unknown(f"Say\n\n```sh\nmake setup   # first\n{piece}   # then\n```\n") == [piece]


def test_the_benchmarks_that_code_and_notebooks_name_are_there() -> None:
    folders = ("qod_magics", "widgets", "notebooks", "tests")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".ipynb")]
    named = {
        (str(path.relative_to(ROOT)), name.replace(".", "/"))
        for path in files
        if path != Path(__file__)
        for pair in re.findall(r"\b(benchmarks/\w+(?=\.py))|python -m (benchmarks\.\w+)", path.read_text("utf-8"))
        for name in pair
        if name
    }
    assert len(named) > 5
    assert [pair for pair in named if not (ROOT / pair[1]).is_dir() and not (ROOT / f"{pair[1]}.py").is_file()] == []


def unseen(text: str) -> list[str]:
    """The tests that a document names and that are not there: `test_x.py`, of tests/live, or `test_x.py::test_y`."""
    found = []
    for file, test in re.findall(r"`((?:tests/[a-z_/]+/)?test_\w+\.py)(?:::(\w+))?`", text):
        path = ROOT / file if "/" in file else ROOT / "tests" / "live" / file
        if not path.is_file() or (test and f"def {test}(" not in path.read_text("utf-8")):
            found.append(f"{file}::{test}" if test else file)
    return found


def test_the_tests_that_the_tables_of_sources_and_sinks_name_are_there() -> None:
    text = (ROOT / "docs" / "reference" / "doors.md").read_text("utf-8")
    assert text.count("`test_") > 30
    assert unseen(text) == []
    there = "`test_sinks.py` and `tests/sources/test_delta.py`"
    assert unseen(f"{there}, `test_no.py`, `test_sinks.py::test_no`") == ["test_no.py", "test_sinks.py::test_no"]


# --- the site ---------------------------------------------------------------------------------------------------------


def test_the_site_shows_every_page_of_the_documentation() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    shown = set(re.findall(r"[\w/.-]+\.(?:md|ipynb)", str(config["nav"])))
    pages = {str(path.relative_to(ROOT)) for path in documents() if path.parts[len(ROOT.parts)] == "docs"}
    labs = {f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert pages | labs <= shown
    assert [name for name in shown if not (ROOT / name).is_file()] == []
    assert config["strict"]


def test_what_the_page_of_the_api_shows_is_there() -> None:
    shown = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "reference" / "api.md").read_text("utf-8"), re.MULTILINE)
    assert len(shown) > 4
    for name in shown:
        assert pkgutil.resolve_name(name).__doc__


def test_generated_parts_come_from_the_code() -> None:
    page = hooks().generated((ROOT / "docs" / "reference" / "options.md").read_text("utf-8"))
    assert "<!-- generated" not in page
    for expected in ("### %qod up", "--task-managers", "--min-accuracy", "headroom", "### python -m qod_magics demo"):
        assert expected in page
    assert "TaskManagerError" in hooks().generated("<!-- generated: errors -->")
    with pytest.raises(KeyError):
        hooks().generated("<!-- generated: no such -->")


def test_what_a_page_would_load_from_the_network_is_found() -> None:
    find = hooks().from_network
    assert find('<script src="https://cdn.example/x.js"></script><link href="//fonts.example/f" rel="stylesheet">') == [
        "https://cdn.example/x.js",
        "//fonts.example/f",
    ]
    assert (
        find('<a href="https://example.org">x</a><img src="local.png"><link rel="canonical" href="https://x/">') == []
    )


def test_formulas_of_notebooks_become_mathml_and_prices_stay() -> None:
    pytest.importorskip("latex2mathml")
    page = hooks().with_formulas("<p>$w = 1/p$ and $$V = x^2$$; $5 an hour, about $10</p><pre>$a$ and $b$</pre>")
    assert page.count("<math") == 2
    assert "$5 an hour, about $10" in page
    assert "<pre>$a$ and $b$</pre>" in page


# --- lengths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "most"), [("README.md", 700), ("EVALUATION.md", 1600), ("CHANGELOG.md", 300), ("SECURITY.md", 300)]
)
def test_a_document_has_an_end(name: str, most: int) -> None:
    assert len((ROOT / name).read_text("utf-8").split()) <= most


def test_the_glossary_has_at_most_40_words() -> None:
    glossary = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Glossary")[2]
    rows = [line for line in glossary.splitlines() if line.startswith("| ")][1:]
    assert 20 < len(rows) <= 40
