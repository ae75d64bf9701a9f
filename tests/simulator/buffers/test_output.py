"""Output buffers on bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.simulator.buffers.scenario import Item, OutputBuffer, Transit


def transit() -> Transit:
    return Transit(Item(0, 0, 1, 1.0, 1, 0), 0)


@given(st.integers(1, 50), st.lists(st.one_of(st.integers(1, 200), st.integers(-50, -1)), max_size=40))
def test_bytes_and_items_leave_in_order_in_full_buffers(size: int, steps: list[int]) -> None:
    """Steps: bytes of an item to write; below 0: a resize to that many."""
    buffer, written, left = OutputBuffer(size), [], []
    for now, each in enumerate(steps):
        if each < 0:
            shipments = buffer.resize(-each, now)
        else:
            written.append(transit())
            shipments = buffer.write(written[-1], each, now)
            assert all(s.bytes == s.buffers * buffer.size for s in shipments)
        for shipment in shipments:
            left += shipment.items
            assert all(item.ships == now for item in shipment.items)
        assert buffer.fill < buffer.size
        assert bool(buffer.waiting) <= bool(buffer.fill)
    assert left + buffer.waiting == written
    assert buffer.shipped + buffer.fill == buffer.written == sum(each for each in steps if each > 0)


def test_an_item_leaves_with_its_last_byte() -> None:
    buffer = OutputBuffer(100)
    first, second, third = transit(), transit(), transit()
    assert buffer.write(first, 60, 0) == []
    (shipment,) = buffer.write(second, 60, 10)
    assert shipment.items == [first]  # 20 bytes of the second are in the next buffer
    full, more = buffer.write(third, 280, 30)
    assert (full.items, more.buffers, more.items) == ([second], 2, [third])
    assert buffer.fill == 0
    assert buffer.take_life() == ((10 - 0) + (30 - 10) + 0 + 0) / 4
    assert buffer.take_life() is None


def test_a_smaller_size_ships_what_is_too_much_for_it() -> None:
    buffer = OutputBuffer(100)
    first = transit()
    buffer.write(first, 60, 0)
    assert buffer.resize(61, 5) == []
    (shipment,) = buffer.resize(60, 7)
    assert shipment.items == [first]
    assert buffer.take_life() == 7


def test_what_is_discarded_is_not_shipped() -> None:
    buffer = OutputBuffer(100)
    buffer.write(transit(), 60, 0)
    assert buffer.discard() == 1
    assert buffer.flush(1) == []
    assert buffer.written == buffer.shipped == 0
