"""What an injector is asked for is looked at before its process starts."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.session.injectors import Injectors


@pytest.mark.parametrize(("cpus", "told"), [({4711}, "cores 4711: this machine has"), (set(), "cores none")])
def test_cores_that_are_not_there_are_refused(cpus: set[int], told: str) -> None:
    """The system would not pin it, and it would run on any core."""
    kafka: Any = None
    with pytest.raises(UsageProblem, match=told):
        Injectors(kafka, ExitStack()).start({}, None, cpus)
