"""A class file is read to the last byte, and what is replaced in it leaves the rest as it was."""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path

import pyspark
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.machine.class_data import ClassFile, UnknownClassError

NETWORK = "org/apache/spark/network"
CREATE = ("createServer", f"(ILjava/util/List;)L{NETWORK}/server/TransportServer;")
BRANCHES = ("init", "(Ljava/lang/String;I)V")  #: of TransportServer


@cache
def content(name: str = "TransportContext") -> bytes:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-network-common_*.jar")
    with zipfile.ZipFile(jar) as files:
        return files.read(f"{NETWORK}/{name}.class")


@pytest.mark.parametrize("length", [1, 16, 40])
def test_a_method_gets_other_code_and_all_else_stays(length: int) -> None:
    other = bytes(range(length))
    old = ClassFile(content())
    new = old.with_code(*CREATE, other)
    assert new.code(*CREATE) == other
    at = content().index(old.code(*CREATE)) - 12  # where the size of the method's attribute `Code` is
    size = int.from_bytes(content()[at : at + 4])
    stack, sizes = content()[at + 4 : at + 8], [(12 + length).to_bytes(4), length.to_bytes(4)]
    expected = content()[:at] + sizes[0] + stack + sizes[1] + other + bytes(4) + content()[at + 4 + size :]
    assert bytes(new) == expected


@given(text=st.text(st.characters(max_codepoint=127), max_size=40))
def test_a_string_is_one_constant_more(text: str) -> None:
    old = ClassFile(content())
    new, index = old.with_string(text)
    assert index > 0
    assert text.encode() in bytes(new)
    assert len(bytes(new)) == len(content()) + 6 + len(text)
    assert new.code(*CREATE) == old.code(*CREATE)
    assert new.with_string(text)[1] == index + 2


def test_a_reference_is_told_by_its_names() -> None:
    read = ClassFile(content())
    call = read.code(*CREATE)[-4:-1]
    assert call[0] == 0xB7  # invokespecial
    owner, name, descriptor = read.member(int.from_bytes(call[1:]))
    assert (owner, name) == (f"{NETWORK}/server/TransportServer", "<init>")
    assert descriptor.startswith(f"(L{NETWORK}/TransportContext;Ljava/lang/String;I")


def test_code_that_branches_is_left_alone() -> None:
    read = ClassFile(content("server/TransportServer"))
    assert len(read.code(*BRANCHES)) > 100
    with pytest.raises(UnknownClassError, match="branches"):
        read.with_code(*BRANCHES, b"\xb1")


@pytest.mark.parametrize("name", ["none", "createClientFactory", "rpcHandler"])
def test_a_method_that_is_not_there_is_said(name: str) -> None:
    with pytest.raises(UnknownClassError):
        ClassFile(content()).code(name, CREATE[1])


@given(st.data())
def test_what_is_damaged_is_refused_or_read_but_breaks_nothing(data: st.DataObject) -> None:
    whole = bytearray(content())
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        read = ClassFile(damaged)
        read.with_code(*CREATE, read.code(*CREATE))
        read.member(data.draw(st.integers(0, 600)))
    except UnknownClassError:
        pass
    else:
        assert bytes(read) == damaged


@given(st.binary(max_size=200))
def test_other_bytes_are_no_class(other: bytes) -> None:
    for each in (other, b"\xca\xfe\xba\xbe" + other):
        with pytest.raises(UnknownClassError):
            ClassFile(each).code(*CREATE)
