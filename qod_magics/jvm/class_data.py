"""Archives of loaded classes (Java's application class-data sharing): a JVM that maps one starts in a part of the time.

An archive fits one Java, one class path in its order, the jars as they are, and one garbage collector. Its name says
which: `NAME-PLACE-STATE.jsa`, hashes of where all of that lies and of its present state. It is written by a JVM at its
orderly end, under another name, and renamed when it is whole. A JVM that finds it unfit or damaged goes on without it;
one that is too short would crash it, so its size is kept beside it, and one of another size is taken for none.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from qod_magics.machine.cache import cache_dir

#: So long a JVM may take to end in order where it writes an archive, seconds.
END_S = 120.0


def directory() -> Path:
    """Where archives lie in the cache."""
    return cache_dir() / "class-data"


def archive_for(name: str, command: Sequence[str]) -> Path | None:
    """The archive that fits this java command, whether it is there or not; None where Java can make none, since a
    directory on the class path has files in it."""
    paths = _class_path(command)
    if any(path.is_dir() and any(path.iterdir()) for path in paths):
        return None
    java = Path(command[0]).resolve()
    used = [java, *_of_java(java), *paths]
    collectors = [word for word in command if word.startswith("-XX:+Use") and word.endswith("GC")]
    state = _digest([*collectors, *map(_stamp, used)])
    return directory() / f"{name}-{_digest(map(str, used))}-{state}.jsa"


def with_archive(name: str, command: Sequence[str]) -> list[str]:
    """The same java command, with its archive if that was made."""
    archive = archive_for(name, command)
    if archive is None or not is_whole(archive):
        return list(command)
    # without verification a JVM crashes on what was damaged behind the archive's header
    return [command[0], f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-XX:+VerifySharedSpaces", *command[1:]]


def making(name: str, command: Sequence[str]) -> Making | None:
    """The making of this command's archive; None where it is there, or can't be made."""
    archive = archive_for(name, command)
    return Making(archive, command) if archive is not None and is_wanted(archive) else None


def is_wanted(archive: Path | None) -> bool:
    """Whether it can be made, is not there in whole, and was not tried in vain."""
    return archive is not None and not is_whole(archive) and not _in_vain(archive).exists()


def is_whole(archive: Path) -> bool:
    """Whether it is there, of the size with which it was made."""
    try:
        return archive.stat().st_size == int(_size_of(archive).read_text())
    except (OSError, ValueError):
        return False


def remove_unfinished() -> None:
    """What killed processes left half-written. The caller keeps others from making any."""
    for part in directory().glob(".*.part"):
        part.unlink(missing_ok=True)


class Making:
    """The making of one archive: run `command` until it has loaded what it should, end it in order, then `finish`."""

    def __init__(self, archive: Path, command: Sequence[str]) -> None:
        self.archive = archive
        self._unfinished = archive.with_name(f".{archive.stem}-{os.getpid()}.part")
        archive.parent.mkdir(parents=True, exist_ok=True)
        self.command = [command[0], f"-XX:ArchiveClassesAtExit={self._unfinished}", *command[1:]]

    def __repr__(self) -> str:
        return f"making of {self.archive}"

    def finish(self) -> bool:
        """Put the archive in its place, and take away the one that was made for an earlier state of the same files;
        whether the JVM wrote one. Call it when the JVM has ended."""
        try:
            if not self._unfinished.is_file() or self._unfinished.stat().st_size == 0:
                _in_vain(self.archive).touch()
                return False
            size = self._unfinished.stat().st_size
            os.replace(self._unfinished, self.archive)
            _size_of(self.archive).write_text(str(size))
        finally:
            self._unfinished.unlink(missing_ok=True)
        place = self.archive.stem.rpartition("-")[0]
        for other in self.archive.parent.glob(f"{place}-*"):
            if other.stem != self.archive.stem:
                other.unlink(missing_ok=True)
        return True


def _size_of(archive: Path) -> Path:
    """The file that keeps the archive's size."""
    return archive.with_suffix(".size")


def _in_vain(archive: Path) -> Path:
    """Its presence says that Java was asked for this archive and wrote none."""
    return archive.with_suffix(".none")


def _class_path(command: Sequence[str]) -> list[Path]:
    """The files of the class path, wildcards resolved."""
    words = list(command)
    entries = next((words[i + 1] for i, word in enumerate(words[:-1]) if word in ("-cp", "-classpath")), "")
    paths: list[Path] = []
    for entry in filter(None, entries.split(os.pathsep)):
        path = Path(entry)
        paths += sorted(path.parent.glob("*.jar")) if path.name == "*" else [path]
    return paths


def _of_java(java: Path) -> list[Path]:
    """What tells one build of Java from another at the same place."""
    home = java.parent.parent
    return [home / "release", home / "lib" / "modules", *sorted(home.glob("lib/server/*"))]


def _stamp(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return f"{path} -"
    return f"{path} {found.st_size} {found.st_mtime_ns}"


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]
