"""Ten minutes of two queries under one fault after the other: `benchmarks.soak` in short, as a process of its own.

With one sequence of faults in `make test`, and in `make test-all` another in each run; the seed is in the output.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MINUTES = 10
SEED = ["--seed", "7"] if os.environ.get("HYPOTHESIS_PROFILE", "default") == "default" else []


@pytest.mark.timeout(60 * MINUTES + 600)
def test_books_and_windows_are_exact_under_faults_and_nothing_is_left() -> None:
    line = [sys.executable, "-u", "-m", "benchmarks.soak", "--minutes", str(MINUTES), *SEED]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as soak:
        assert soak.stdout is not None
        try:
            said = [print(each, end="") or each for each in soak.stdout]
        finally:
            soak.terminate()
    passed = [each for each in said if each.startswith("PASS ")]
    assert [each for each in said if each.startswith("FAIL ")] == []
    assert soak.returncode == 0
    assert len(passed) >= 8
    assert sum(" s: " in each for each in said) >= 6, "faults happened"
