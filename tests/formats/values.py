"""Avro values as a registry's serializers write them: a frame, and the fields of a record one after the other."""

from __future__ import annotations

import struct

#: What `avro` writes, by the name of its version.
TRIP = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "zone", "type": "int"},
        {"name": "fare", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
    ],
}
#: The same with a field between, which readers of the first one skip.
WIDER = {**TRIP, "fields": [TRIP["fields"][0], {"name": "extra", "type": "string"}, *TRIP["fields"][1:]]}


def framed(id: int, value: bytes) -> bytes:
    """Put a value behind the id of its schema."""
    return b"\0" + id.to_bytes(4, "big") + value


def trip(zone: int, fare: float, note: str | None, extra: str | None = None) -> bytes:
    """Return a record of `TRIP`, with an extra one of `WIDER`."""
    middle = b"" if extra is None else _text(extra)
    return _long(zone) + middle + struct.pack("<d", fare) + (b"\0" if note is None else b"\2" + _text(note))


def _text(text: str) -> bytes:
    data = text.encode()
    return _long(len(data)) + data


def _long(number: int) -> bytes:
    left, found = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])
