"""`python -m qod_magics plan`: plans and pipes from the real command, what is refused in this process."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from qod_magics.__main__ import COMMANDS
from qod_magics.__main__ import main as run
from qod_magics.commands.plan import main
from tests.texts import tells

ROOT = Path(__file__).parents[2]
ORACLES = ROOT / "tests" / "recorded" / "stream_economics_oracles.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in ORACLES.read_text(encoding="utf-8").splitlines()]


def command(*words: str, given: str | bytes = "") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "qod_magics", *words],
        input=given.encode() if isinstance(given, str) else given,
        capture_output=True,
        cwd=ROOT,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def here(*words: str, given: str | bytes = "") -> subprocess.CompletedProcess[str]:
    """Run the command as `command` does, in this process."""
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(given.encode() if isinstance(given, str) else given))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            status = run(list(words))
    finally:
        sys.stdin = before
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())


def plans(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def assert_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


@pytest.fixture
def snapshot_file(tmp_path: Path) -> Path:
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(CASES[2]["snapshot"], indent=1), encoding="utf-8")
    return file


def test_a_snapshot_gives_one_plan(snapshot_file: Path) -> None:
    done = command("plan", str(snapshot_file))
    assert (done.returncode, done.stderr) == (0, "")
    (plan,) = plans(done.stdout)
    assert list(plan) == ["current_accuracy", "desired", "non_drop", "fail", "place", "starved"]
    assert plan["desired"] == pytest.approx(CASES[2]["plan"]["desired"])


def test_standard_input_may_be_one_snapshot_over_many_lines(snapshot_file: Path) -> None:
    done = command("plan", "-", given="\n\n" + snapshot_file.read_text(encoding="utf-8"))
    assert done.stdout == command("plan", str(snapshot_file)).stdout != ""


def test_a_recording_gives_a_plan_a_line_by_file_and_by_standard_input() -> None:
    by_file = command("plan", str(ORACLES))
    assert [plan["starved"] for plan in plans(by_file.stdout)] == [case["plan"]["starved"] for case in CASES]
    by_input = command("plan", "-", given=ORACLES.read_bytes())
    assert by_input.stdout == by_file.stdout


def test_a_line_of_a_recording_is_decided_by_the_policy_that_it_names(tmp_path: Path) -> None:
    named = [None, "stream-economics-reactive", "stream-economics"]
    lines = [{"snapshot": CASES[2]["snapshot"], **({"policy": name} if name else {})} for name in named]
    file = tmp_path / "run.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert ["react_above" in plan for plan in plans(here("plan", str(file)).stdout)] == [False, True, False]
    filled = plans(here("plan", str(file), "--policy", "stream-economics-filled").stdout)
    assert ["react_above" in plan for plan in filled] == [False, False, False]


def test_a_line_that_names_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text(json.dumps({"snapshot": CASES[2]["snapshot"], "policy": "stream-econ"}), encoding="utf-8")
    assert_refused(here("plan", str(file)), "line 1", "Did you mean 'stream-economics'?")


def test_lines_may_be_plain_snapshots_and_blank(tmp_path: Path) -> None:
    file = tmp_path / "plain.jsonl"
    file.write_text("\n".join(f"{json.dumps(case['snapshot'])}\n" for case in CASES[:3]), encoding="utf-8")
    assert len(plans(here("plan", str(file)).stdout)) == 3


def test_timing_adds_the_time_of_the_decision(snapshot_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(snapshot_file), "--timing"]) == 0
    (plan,) = plans(capsys.readouterr().out)
    assert plan["policy_ms"] >= 0
    assert main([str(snapshot_file)]) == 0
    assert "policy_ms" not in plans(capsys.readouterr().out)[0]


@pytest.mark.parametrize(
    ("words", "given", "said"),
    [
        (["-"], "", ["standard input", "empty"]),
        (["-"], "[1, 2]", ["snapshot must be an object", "[1, 2]"]),
        (["-"], '{"tasks": [],\n "streams" []}', ["line 2 column 12", "not JSON"]),
        (["-"], b'{"\xff": 1}', ["not UTF-8"]),
        (["-"], "[" * 100000, ["nested too deeply"]),
        (["-"], '{"task_managers": ' + "9" * 5000 + "}", ["not usable JSON"]),
        (["-"], '{"snapshot": 3}', ["snapshot: 3 is not an object"]),
        (["-"], '{"snapshot": {}}', ["line 1", "'task_managers'"]),
        (["-", "--policy", "stream-econ"], "{}", ["Did you mean 'stream-economics'?"]),
        (["-", "--tming"], "{}", ["--tming"]),
        ([], "", ["FILE"]),
        (["no-such-file.json"], "", ["no-such-file.json", "No such file"]),
        (["."], "", ["directory"]),
        (["-", "more"], "", ["more"]),
    ],
)
def test_what_can_not_be_used_is_refused_on_one_line(words: Sequence[str], given: str | bytes, said: list[str]) -> None:
    done = here("plan", *words, given=given)
    assert_refused(done, *said)
    assert done.stdout == ""


def test_a_bad_line_is_named_after_the_plans_before_it(tmp_path: Path) -> None:
    bad = json.loads(json.dumps(CASES[1]))
    bad["snapshot"]["tasks"][2]["min_accuracy"] = 1.5
    file = tmp_path / "run.jsonl"
    file.write_text("\n".join(json.dumps(case) for case in (CASES[0], bad, CASES[2])), encoding="utf-8")
    done = here("plan", str(file))
    assert_refused(done, "run.jsonl line 2: tasks[2].min_accuracy: 1.5")
    assert len(plans(done.stdout)) == 1


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    file.write_text(f"{json.dumps(CASES[2])}\n" * 2000, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-m", "qod_magics", "plan", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_planning_imports_neither_spark_nor_kafka_nor_numpy(snapshot_file: Path) -> None:
    code = (
        "import sys; from qod_magics.__main__ import main; main(sys.argv[1:]);"
        "print([m for m in ('pyspark', 'confluent_kafka', 'IPython', 'numpy') if m in sys.modules],"
        "file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "plan", str(snapshot_file)], capture_output=True, cwd=ROOT, check=True
    )
    assert done.stderr.decode().strip() == "[]"


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, entry in COMMANDS.items():
        assert f"  {name} " in shown
        assert entry.summary in shown


def test_an_unknown_command_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plna"]) == 2
    said = capsys.readouterr().err
    assert (said.count("\n"), tells(said, "'plna'", "'plan'")) == (1, True)


def test_no_command_is_answered_with_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "usage" in capsys.readouterr().err
