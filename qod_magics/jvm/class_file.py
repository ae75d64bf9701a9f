"""Java class files: enough of them to read a method's bytecode, and to replace it where nothing in it branches.

Chapter 4 of the Java Virtual Machine Specification describes the format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_MAGIC = b"\xca\xfe\xba\xbe"
_UTF8, _LONG, _DOUBLE, _STRING = 1, 5, 6, 8
#: Bytes of a constant after its tag; a text has its length there, and the text behind it.
_SIZES = {_UTF8: 2, 3: 4, 4: 4, _LONG: 8, _DOUBLE: 8, 7: 2, _STRING: 2, 9: 4, 10: 4, 11: 4, 12: 4}
_SIZES |= {15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
#: What an attribute `Code` has before its bytecode: name, length, size of the stack, local variables, code length.
_BEFORE_CODE = 14
_MOST_CONSTANTS = 0xFFFF


class UnknownClassError(ValueError):
    """These bytes are no class file, or the class is not as it has to be."""


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
        """The bytecode of a method. Raises UnknownClassError: the class has no such method with code."""
        start = self._code(name, descriptor) + _BEFORE_CODE
        return self._content[start : start + self._number(start - 4, 4)]

    def member(self, index: int) -> tuple[str, str, str]:
        """Class, name and descriptor of the method or field to which the constant at `index` refers."""
        at = self._constant(index)
        owner, named = self._constant(self._number(at + 1, 2)), self._constant(self._number(at + 3, 2))
        return self._text_at(owner + 1), self._text_at(named + 1), self._text_at(named + 3)

    def with_string(self, text: str) -> tuple[ClassFile, int]:
        """The same class with one more string among its constants, and the string's index. ASCII only."""
        encoded, index = text.encode("ascii"), len(self._constants)
        if index + 2 > _MOST_CONSTANTS:
            raise UnknownClassError("it has no room for another constant")
        added = struct.pack(f">BH{len(encoded)}sBH", _UTF8, len(encoded), encoded, _STRING, index)
        count = struct.pack(">H", index + 2)
        before, after = self._content[10 : self._body], self._content[self._body :]
        return ClassFile(self._content[:8] + count + before + added + after), index + 1

    def with_code(self, name: str, descriptor: str, code: bytes) -> ClassFile:
        """The same class with other bytecode in a method, which may use as much of the stack as the old one. The
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
        """Where the method's attribute `Code` begins."""
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
        """The text whose index is at this position."""
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
