import numpy as np

from qod_magics.core.keyed import Keyed, Keys
from qod_magics.simulator.engine.column import Column

NAMES = ("a", "b", "c")


def test_values_come_in_the_order_of_the_names_whatever_that_of_the_mapping() -> None:
    column, last = Column(NAMES), np.array([7.0, 8.0, 9.0])
    for order in (("a", "b", "c"), ("c", "b", "a"), ("b", "d", "c", "a")):
        values = {name: float(ord(name)) for name in order}
        wanted = [97.0, 98.0, 99.0]
        assert column.of(values, last).tolist() == wanted
        assert column.of(Keyed(Keys(order), list(values.values())), last).tolist() == wanted


def test_what_the_mapping_does_not_name_stays_as_it_was() -> None:
    column, last = Column(NAMES), np.array([7.0, 8.0, 9.0])
    assert column.of({"b": 1.0}, last).tolist() == [7.0, 1.0, 9.0]
    assert column.of(Keyed(Keys(("b", "d")), [1.0, 2.0]), last).tolist() == [7.0, 1.0, 9.0]
    assert last.tolist() == [7.0, 8.0, 9.0]


def test_none_is_nan_and_not_the_last_value() -> None:
    column, last = Column(NAMES), np.array([7.0, 8.0, 9.0])
    values = {"a": None, "b": 1.0}
    for mapping in (values, Keyed(Keys(values), list(values.values()))):
        found = column.of(mapping, last)
        assert np.isnan(found[0])
        assert found[1:].tolist() == [1.0, 9.0]
