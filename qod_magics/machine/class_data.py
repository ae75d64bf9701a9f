"""Java classes: files that are patched, and archives from which a JVM starts sooner."""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from qod_magics.machine.cache import cache_dir
from qod_magics.machine.java import AOT_JAVA, released

# --- Class files ------------------------------------------------------------------------------------------------------
# Java class files: enough of them to read a method's bytecode, and to replace it where nothing in it branches.
#
# Chapter 4 of the Java Virtual Machine Specification describes the format.

_MAGIC = b"\xca\xfe\xba\xbe"
_UTF8, _LONG, _DOUBLE, _STRING = 1, 5, 6, 8
#: Bytes of a constant after its tag; a text has its length there, and the text behind it.
_SIZES = {_UTF8: 2, 3: 4, 4: 4, _LONG: 8, _DOUBLE: 8, 7: 2, _STRING: 2, 9: 4, 10: 4, 11: 4, 12: 4}
_SIZES |= {15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
#: What an attribute `Code` has before its bytecode: name, length, size of the stack, local variables, code length.
_BEFORE_CODE = 14
_MOST_CONSTANTS = 0xFFFF


class UnknownClassError(ValueError):
    """These bytes are not a class file, or the class has an unexpected form."""


class ClassFile:
    """A class file.

    Raises:
        UnknownClassError: `content` is none.

    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._constants: list[int] = [0]  #: where each begins, by index; the second index of a long or double: 0
        if content[:4] != _MAGIC:
            raise UnknownClassError("no class file")
        at = 10
        while len(self._constants) < self._number(8, 2):
            tag = self._number(at, 1)
            if tag not in _SIZES:
                raise UnknownClassError(f"no class file: its constant {len(self._constants)} is of kind {tag}")
            self._constants += [at, 0] if tag in (_LONG, _DOUBLE) else [at]
            at += 1 + _SIZES[tag] + (self._number(at + 1, 2) if tag == _UTF8 else 0)
        self._body = at  #: where what follows the constants begins

    def __bytes__(self) -> bytes:
        return self._content

    def code(self, name: str, descriptor: str) -> bytes:
        """Return the bytecode of a method. Raises UnknownClassError: the class has no such method with code."""
        start = self._code(name, descriptor) + _BEFORE_CODE
        return self._content[start : start + self._number(start - 4, 4)]

    def member(self, index: int) -> tuple[str, str, str]:
        """Class, name and descriptor of the method or field to which the constant at `index` refers."""
        at = self._constant(index)
        owner, named = self._constant(self._number(at + 1, 2)), self._constant(self._number(at + 3, 2))
        return self._text_at(owner + 1), self._text_at(named + 1), self._text_at(named + 3)

    def with_string(self, text: str) -> tuple[ClassFile, int]:
        """Return the same class with one more string among its constants, and the string's index. ASCII only."""
        encoded, index = text.encode("ascii"), len(self._constants)
        if index + 2 > _MOST_CONSTANTS:
            raise UnknownClassError("it has no room for another constant")
        added = struct.pack(f">BH{len(encoded)}sBH", _UTF8, len(encoded), encoded, _STRING, index)
        count = struct.pack(">H", index + 2)
        before, after = self._content[10 : self._body], self._content[self._body :]
        return ClassFile(self._content[:8] + count + before + added + after), index + 1

    def with_code(self, name: str, descriptor: str, code: bytes) -> ClassFile:
        """Return the same class with other bytecode in a method, which may use as much of the stack as the old one. The
        method's tables of lines and local variables are left out: they name positions in the old code.

        Raises UnknownClassError where `code` does, and where the method branches or has handlers: such positions, too.
        """
        at = self._code(name, descriptor)
        start = at + _BEFORE_CODE
        end = start + self._number(start - 4, 4)
        if self._number(end, 2) or any(kind == "StackMapTable" for kind, _ in self._attributes(end + 2)):
            raise UnknownClassError(f"its {name}{descriptor} branches")
        body = self._content[at + 6 : start - 4] + struct.pack(">I", len(code)) + code + bytes(4)  # no handlers, tables
        rest = self._content[at + 6 + self._number(at + 2, 4) :]
        return ClassFile(self._content[: at + 2] + struct.pack(">I", len(body)) + body + rest)

    def _code(self, name: str, descriptor: str) -> int:
        """Return where the method's attribute `Code` begins."""
        at = self._body + 6
        at += 2 + 2 * self._number(at, 2)  # interfaces
        for kind in ("fields", "methods"):
            count, at = self._number(at, 2), at + 2
            for _ in range(count):
                same = (self._text_at(at + 2), self._text_at(at + 4)) == (name, descriptor)
                end = at + 8
                for attribute, begin in self._attributes(at + 6):
                    if kind == "methods" and same and attribute == "Code":
                        return begin
                    end = begin + 6 + self._number(begin + 2, 4)
                at = end
        raise UnknownClassError(f"it has no {name}{descriptor}")

    def _attributes(self, at: int) -> Iterator[tuple[str, int]]:
        """Name and beginning of each attribute in the list at this position."""
        count, at = self._number(at, 2), at + 2
        for _ in range(count):
            yield self._text_at(at), at
            at += 6 + self._number(at + 2, 4)

    def _constant(self, index: int) -> int:
        if not 0 < index < len(self._constants) or not self._constants[index]:
            raise UnknownClassError(f"it has no constant {index}")
        return self._constants[index]

    def _text_at(self, at: int) -> str:
        """Return the text whose index is at this position."""
        begin = self._constant(self._number(at, 2))
        if self._number(begin, 1) != _UTF8:
            raise UnknownClassError(f"its constant {self._number(at, 2)} is no text")
        size = self._number(begin + 1, 2)
        return self._content[begin + 3 : begin + 3 + size].decode("utf-8", "replace")

    def _number(self, at: int, size: int) -> int:
        found = self._content[at : at + size]
        if len(found) < size:
            raise UnknownClassError("it ends too early")
        return int.from_bytes(found)


# --- Archives of classes ----------------------------------------------------------------------------------------------
# Java 25 and later write an AOT cache (JEP 483, 514, 515: classes loaded and linked, and profiles of methods, which are
# compiled sooner), older ones a class-data archive. An archive is valid for one Java, one ordered class path of
# unchanged jars, and one garbage collector. Its name, `NAME-PLACE-STATE.aot` or `.jsa`, hashes their paths and their
# present state. A JVM writes it on an orderly exit, under a temporary name; it is renamed when complete. A JVM ignores
# an archive that does not match or is damaged, but a truncated one would crash it: so its size is kept beside it, and
# an archive of another size is ignored. The same file names the directories that it depends on, and its own time is
# that of the last use: an archive of which one is gone, or that nobody used for a month, is removed when another one is
# made.

#: Timeout for the orderly exit of a JVM that writes an archive, seconds.
END_S = 180.0
#: How long an archive is kept that nobody uses, seconds.
KEPT_S = 30 * 24 * 3600.0
#: Java checks an archive before it maps it: damage behind the archive's header would crash it.
_CHECKED = "-XX:+VerifySharedSpaces"


def directory() -> Path:
    """Return the cache directory of the archives."""
    return cache_dir() / "class-data"


def archive_for(name: str, command: Sequence[str]) -> Path | None:
    """Return the archive for this java command, existing or not; None where Java can't create one, since a directory on
    the class path has files in it."""
    paths = _class_path(command)
    if any(path.is_dir() and any(path.iterdir()) for path in paths):
        return None
    java = Path(command[0]).resolve()
    used = [java, *_java_files(java), *paths]
    collectors = [word for word in command if word.startswith("-XX:+Use") and word.endswith("GC")]
    state = _digest([*collectors, *map(_stamp, used)])
    suffix = "aot" if (released(java) or 0) >= AOT_JAVA else "jsa"
    return directory() / f"{name}-{_digest(map(str, used))}-{state}.{suffix}"


def with_archive(name: str, command: Sequence[str]) -> list[str]:
    """Return the same java command, with its archive if it exists."""
    archive = archive_for(name, command)
    if archive is None or not is_whole(archive):
        return list(command)
    with suppress(OSError):  # a cache that others made
        _size_of(archive).touch()
    if archive.suffix == ".aot":
        return [command[0], f"-XX:AOTCache={archive}", _CHECKED, *command[1:]]
    return [command[0], f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", _CHECKED, *command[1:]]


def archives() -> list[Path]:
    """Return the archives in the cache, in order of their names."""
    return sorted(path for path in directory().glob("*") if path.suffix in (".aot", ".jsa"))


def making(name: str, command: Sequence[str]) -> Making | None:
    """Return a `Making` of this command's archive; None if it exists or can't be created."""
    archive = archive_for(name, command)
    return Making(archive, command) if archive is not None and is_wanted(archive) else None


def is_wanted(archive: Path | None) -> bool:
    """Return whether it can be created, is not complete, and no attempt has failed."""
    return archive is not None and not is_whole(archive) and not _failed_marker(archive).exists()


def is_whole(archive: Path) -> bool:
    """Return whether it exists with its recorded size."""
    try:
        return archive.stat().st_size == int(_size_of(archive).read_text().split("\n")[0])
    except (OSError, ValueError):
        return False


def remove_unfinished() -> None:
    """Remove what killed processes left half-written, and archives that nobody uses or can use any more. The caller
    excludes other writers."""
    for part in directory().glob(".*.part*"):
        part.unlink(missing_ok=True)
    for archive in archives():
        try:
            needed = _size_of(archive).read_text().split("\n")[1:]
            unused_s = time.time() - _size_of(archive).stat().st_mtime
        except OSError:
            continue
        if unused_s > KEPT_S or not all(Path(each).is_dir() for each in needed):
            archive.unlink(missing_ok=True)
            _size_of(archive).unlink(missing_ok=True)


class Making:
    """Creates one archive: run `command` until its classes are loaded, end it in order, then `finish`."""

    def __init__(self, archive: Path, command: Sequence[str]) -> None:
        self.archive = archive
        self._unfinished = archive.with_name(f".{archive.stem}-{os.getpid()}.part")
        self._needed = sorted({str(path.parent) for path in (Path(command[0]).resolve(), *_class_path(command))})
        archive.parent.mkdir(parents=True, exist_ok=True)
        option = "AOTCacheOutput" if archive.suffix == ".aot" else "ArchiveClassesAtExit"
        self.command = [command[0], f"-XX:{option}={self._unfinished}", *command[1:]]

    def __repr__(self) -> str:
        return f"making of {self.archive}"

    def finish(self) -> bool:
        """Move the archive into place and remove those for earlier states of the same files; returns whether the JVM
        wrote one. Call it when the JVM has ended."""
        try:
            if not self._unfinished.is_file() or self._unfinished.stat().st_size == 0:
                _failed_marker(self.archive).touch()
                return False
            size = self._unfinished.stat().st_size
            os.replace(self._unfinished, self.archive)
            _size_of(self.archive).write_text("\n".join([str(size), *self._needed]))
        finally:
            self._unfinished.unlink(missing_ok=True)
        place = self.archive.stem.rpartition("-")[0]
        for other in self.archive.parent.glob(f"{place}-*"):
            if other.stem != self.archive.stem:
                other.unlink(missing_ok=True)
        return True


def _size_of(archive: Path) -> Path:
    """Return the file that records the archive's size."""
    return archive.with_suffix(".size")


def _failed_marker(archive: Path) -> Path:
    """Return a file that exists if Java was asked for this archive and wrote none."""
    return archive.with_suffix(".none")


def _class_path(command: Sequence[str]) -> list[Path]:
    """Return the files of the class path, wildcards resolved."""
    words = list(command)
    entries = next((words[i + 1] for i, word in enumerate(words[:-1]) if word in ("-cp", "-classpath")), "")
    paths: list[Path] = []
    for entry in filter(None, entries.split(os.pathsep)):
        path = Path(entry)
        paths += sorted(path.parent.glob("*.jar")) if path.name == "*" else [path]
    return paths


def _java_files(java: Path) -> list[Path]:
    """Files that distinguish builds of Java at the same path."""
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
