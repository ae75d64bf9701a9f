"""The notebooks, run as they are in kernels of their own, with short phases. (Those without Spark: test_labs.py.)"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from qod_magics.kafka.topics import create_topics
from qod_magics.notebook.replies import FROM_THE_START
from qod_magics.session.status import DECLARED
from tests.live.guarded import READS, GuardedBroker, running
from tests.live.kernel import CELL_S, START_S
from tests.texts import tells

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SCALE = "0.8"  #: phases of several periods, so that each is reported and decided on where others use the cores, too
SCALE_OF_PARTS = "0.5"  #: of the parts of labs on Spark, which compare two policies

#: Classifies in the notebook, once more and without Spark, what the query classified: the share of equal answers.
CLASSIFY_AGAIN = """
import numpy as np
from qod_magics.data import generate_points

ids = results["id"].unique()
table = generate_points(POINTS["rows"], POINTS["seed"], POINTS["clusters"]).to_pandas().iloc[ids]
expected = {}
for place in range(0, len(ids), 500):
    apart = table[["x", "y", "z"]].to_numpy()[place : place + 500, None] - reference[["x", "y", "z"]].to_numpy()[None]
    order = np.argsort((apart**2).sum(axis=2), axis=1, kind="stable")[:, :k]
    for id, near in zip(ids[place : place + 500], reference["label"].to_numpy()[order], strict=True):
        expected[id] = max(near, key=lambda label: ((near == label).sum(), -list(near).index(label)))
(results["label"] == results["id"].map(expected)).mean()
"""


def run(
    name: str,
    folder: Path,
    extra: str = "",
    before: str = "%qod down",
    part: str = "",
    scale: str = SCALE,
    changes: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Run a notebook, or its first cell and the `part` that begins with these words, with one more cell before the one
    that is `before`; what each cell showed, by its source. `changes`: what stands in the place of these words.

    Raises CellExecutionError when a cell fails.
    """
    book = nbformat.read(NOTEBOOKS / name, 4)
    if part:
        begins = next(i for i, cell in enumerate(book.cells) if cell.source.startswith(part))
        first = next(cell for cell in book.cells if cell.cell_type == "code")
        book.cells = [first, *book.cells[begins:]]
    sources = [cell.source for cell in book.cells]
    for words, others in changes.items():
        assert any(words in source for source in sources), words
        for cell in book.cells:
            cell.source = cell.source.replace(words, others)
    if extra:
        book.cells.insert(sources.index(before), nbformat.v4.new_code_cell(extra))
    where = {"metadata": {"path": str(folder)}}
    client = NotebookClient(
        book, timeout=CELL_S, startup_timeout=START_S, resources=where, extra_arguments=[FROM_THE_START]
    )
    client.execute(env={**os.environ, "QOD_DEMO_SCALE": scale, "QOD_DEMO_BUILD": str(folder)})
    return {cell.source: "".join(map(_text, cell.outputs)) for cell in book.cells if cell.cell_type == "code"}


def _text(output: Any) -> str:
    if output.get("name") == "stderr":
        return ""  # alarms
    text: str = output.text if output.output_type == "stream" else output.data["text/plain"]
    return text


def _find(shown: dict[str, str], words: str) -> str:
    """What the one cell with these words in its source showed."""
    (found,) = [text for source, text in shown.items() if words in source]
    return found


def test_k_nearest_neighbours(tmp_path: Path) -> None:
    shown = run("knn.ipynb", tmp_path, CLASSIFY_AGAIN)
    assert re.match(r"KNN runs on tm1 in real-time mode\n", _find(shown, "%%qod_stream KNN"))
    arrived, classified, dropped, waiting = (
        int(number.replace(",", ""))
        for number in re.findall(
            r"([\d,]+) points came: ([\d,]+) classified, ([\d,]+) dropped, ([\d,]+) wait", _find(shown, "counts =")
        )[0]
    )
    assert arrived >= classified + dropped + waiting
    assert classified > 0
    assert dropped > 0, "an overload, and nothing was shed"
    (right,) = re.findall(r"accuracy of the classifier: ([\d.]+)", _find(shown, "counts ="))
    assert float(right) > 0.85, "far above one in sixteen, which chance would give"
    assert float(re.findall(r"[\d.]+", shown[CLASSIFY_AGAIN])[-1]) == 1.0, "Spark's answers are those of numpy"
    assert "KNN" in shown["%qod why KNN"]
    assert shown["%qod down"].startswith("down: ")


def test_lab_1(tmp_path: Path) -> None:
    check_lab_1(run("lab1_first_stream.ipynb", tmp_path))


#: What sends the trips where the notebook's login may only read them: a program of others.
OTHERS = """
from contextlib import ExitStack
from qod_magics.kafka.cluster import ExternalKafka
from qod_magics.session.injectors import Injectors

others = Injectors(ExternalKafka({bootstrap!r}, {credentials!r}), ExitStack())
"""


def test_lab_1_where_the_login_may_only_read_one_topic(tmp_path: Path) -> None:
    users = GuardedBroker()
    with running(users):
        create_topics(users, {"trips": 1, "other": 1})
        users.allow("trips", *READS)
        before = set(users.admin().list_topics(timeout=10.0).topics)
        options = {**users.reader["kafka_options"], "bootstrap.servers": users.bootstrap}
        lines = "".join(f"{name}={value}\n" for name, value in options.items())
        (tmp_path / "reader.properties").write_text(lines, "utf-8")
        others = OTHERS.format(bootstrap=users.bootstrap, credentials=users.credentials)
        changes = {
            "%load_ext qod_magics": f"%load_ext qod_magics\n{others}",
            "--kafka-cpus": "--kafka-config reader.properties --internal-kafka own --kafka-cpus",
            "qod.inject(": "others.start(record=None, scenario=",
        }
        shown = run("lab1_first_stream.ipynb", tmp_path, scale="0.5", changes=changes)
        check_lab_1(shown)
        assert set(users.admin().list_topics(timeout=10.0).topics) == before, "not even one for offsets of groups"


def check_lab_1(shown: dict[str, str]) -> None:
    assert _find(shown, "%%qod_stream rides") == f"rides {DECLARED}\n"
    assert tells(_find(shown, "%%qod_stream speeds"), "speeds", "tm1", "real-time")
    for query in ("fares", "speeds"):
        assert shown[f"%qod why {query}"].startswith(f"{query} runs at ")
    assert tells(_find(shown, "%qod set speeds"), "speeds", 0.3)
    came, total = re.findall(r"([\d,]+) rows came through; their weights sum to ([\d,]+)", _find(shown, "results ="))[0]
    assert int(total.replace(",", "")) >= int(came.replace(",", "")) > 0
    (dropped,) = re.findall(r"rides: .* kept, ([\d,]+) were dropped", _find(shown, "measured.counts"))
    assert dropped != "0", "an overload, and nothing was shed"
    assert sum(text.startswith("Your turn") for text in shown.values()) == 3
    assert shown["%qod down"].startswith("down: ")


def test_lab_12(tmp_path: Path) -> None:
    """Exact figures beside estimates at keep probability 0.3, then in their place."""
    shown = run("lab12_exact_later.ipynb", tmp_path)
    held, of, lost = map(
        int, re.findall(r"(\d+) of (\d+) intervals held .*; (\d+) groups", _find(shown, "later.held"))[0]
    )
    assert of >= 2 * 5 * 3, "five zones, two figures, three windows"
    assert held >= 0.8 * of
    assert lost == 0
    assert sum(text.startswith("Your turn") for text in shown.values()) == 4
    groups, share = map(int, re.findall(r"(\d+) groups were merged; now (\d+)%", _find(shown, "merge=True"))[0])
    assert (groups, share) == (of // 2, 100)
    assert shown["%qod down"].startswith("down: ")


def on_spark(name: str, folder: Path, figures: str) -> Any:
    """Run the part of a lab that needs Spark; the value of an expression after it."""
    last = "if live:\n    %qod down"
    shown = run(name, folder, figures, before=last, part="## On Spark", scale=SCALE_OF_PARTS)
    assert shown[last].startswith("down: ")
    assert sum("<IPython.core.display.SVG object>" in text for text in shown.values()) == 1, "a chart"
    return ast.literal_eval(shown[figures])


def test_lab_7_rescales_a_query_with_its_state(tmp_path: Path) -> None:
    figures = "sent, counted, scaled['trips that wait'].fillna(0).tolist(), scaled['instances'].tolist()"
    sent, counted, waiting, instances = on_spark("lab7_targets_and_machines.ipynb", tmp_path, figures)
    assert counted == sent > 10_000
    assert {1, 2} <= set(instances)
    assert max(waiting) > 5 * max(waiting[-1], 100), "a backlog, which was read"


@pytest.mark.slow
def test_lab_9_starts_batches_in_the_order_of_their_deadlines(tmp_path: Path) -> None:
    latency = on_spark("lab9_deadlines.ipynb", tmp_path, "medians['median latency, s'].to_dict()")
    assert latency["cameo"] < latency["orleans"]


def test_lab_10_spaces_batches_by_the_target(tmp_path: Path) -> None:
    figures = "paced.groupby(['policy', 'target, s'])[figures[0]].median().reset_index().to_dict('records')"
    rows = on_spark("lab10_buffers_and_chains.ipynb", tmp_path, figures)
    apart = {(row["policy"], row["target, s"]): row["batches, s apart"] for row in rows}
    assert apart["nephele", 4.0] > 1.3 * apart["nephele-flush", 4.0], apart
    assert apart["nephele", 1.5] < 0.8 * apart["nephele", 4.0], apart


def test_lab_11_keeps_fewer_copies(tmp_path: Path) -> None:
    figures = "ends.copies.groupby('policy').sum().to_dict(), ends.kB.groupby('policy').sum().to_dict()"
    for kept in on_spark("lab11_hot_slices.ipynb", tmp_path, figures):
        assert 0 < kept["getafix"] < 0.8 * kept["getafix-everywhere"], kept
