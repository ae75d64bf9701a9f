"""A Kafka source that sheds while it reads: Spark's own, with a load shedder in front of its rows.

Spark makes a row of each record before a plan can drop it. A record that the reader drops takes less than half of that
CPU (`benchmarks/dropping.py`), and what is left is Kafka's consumer. No setting of Spark's source does this, so a
reader of ours, in `shedding_kafka.scala`, stands between Spark's source and Spark. The Scala compiler among Spark's own
jars compiles it once for each Spark and connector; the jar stays in the cache.

Skipping whole blocks of offsets would spare the consumer, too, but is no sample of single rows: where a key's rows come
in bursts of 100, intervals of 95 % then cover the truth in 23 % of cases.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from qod_magics.errors import SetupError
from qod_magics.jvm.java import Java
from qod_magics.machine.cache import cache_dir, locked

SOURCE = Path(__file__).with_name("shedding_kafka.scala")
_COMPILER = "scala.tools.nsc.Main"
#: How long it may take to compile on a busy machine, seconds; some four on an idle one.
COMPILING_S = 120.0
#: Of the classes in the jar: it has the same content whenever it is made.
_MADE = (1980, 1, 1, 0, 0, 0)


def shedding_jar(java: Java, home: Path, connector: Sequence[Path]) -> Path:
    """The jar of the source for the Spark in `home` and this connector: in the cache, and made if it is not there.

    Raises:
        SetupError: it can't be compiled, as of a Spark with other classes, or the cache can't be written.

    """
    used = [SOURCE.read_text("utf-8"), *sorted(jar.name for jar in [*connector, *home.glob("jars/spark-*.jar")])]
    digest = hashlib.sha256("\n".join(used).encode()).hexdigest()[:12]
    file = cache_dir() / "kafka-source" / f"shedding-kafka-{digest}.jar"
    if file.exists():
        return file
    with locked(cache_dir() / "kafka-source.lock"):
        if not file.exists():
            _write(file, _compiled(java, [home / "jars" / "*", *connector]))
    return file


def _compiled(java: Java, class_path: Sequence[Path]) -> bytes:
    """A jar of the source's classes."""
    with tempfile.TemporaryDirectory(prefix="qod-source-") as directory:
        words = [
            str(java.path),
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-cp",
            os.pathsep.join(map(str, class_path)),
            _COMPILER,
        ]
        words += ["-usejavacp", "-nowarn", "-d", directory, str(SOURCE)]
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, errors="replace", timeout=COMPILING_S, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SetupError(f"{SOURCE.name} can't be compiled: {error}") from error
        if done.returncode:
            lines = (done.stdout + done.stderr).splitlines()
            said = next((line for line in lines if "error" in line.lower()), f"exit code {done.returncode}")
            raise SetupError(f"{SOURCE.name} can't be compiled for this Spark: {said[:300]}")
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as jar:
            for path in sorted(Path(directory).rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(str(path.relative_to(directory)), _MADE), path.read_bytes())
        return content.getvalue()


def _write(file: Path, content: bytes) -> None:
    """Have the file complete or not at all."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")  # the caller holds the lock
        part.write_bytes(content)
        os.replace(part, file)
    except OSError as error:
        raise SetupError(f"{file} can't be written: {error.strerror}") from error
