"""Errors by their attributes: `pytest.raises(TaskManagerError, check=breaks("unique", name="tm1"))`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def breaks(rule: str | None = None, **attributes: Any) -> Callable[[BaseException], bool]:
    """Checks that an error is about this rule, if one is given, and has these attributes, in one line."""
    wanted = {**({} if rule is None else {"rule": rule}), **attributes}

    def check(error: BaseException) -> bool:
        found = {name: getattr(error, name, None) for name in wanted}
        assert found == wanted, str(error)
        assert "\n" not in str(error)
        return True

    return check
