"""What an injector is asked for is looked at before its process starts."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.session.injectors import Injectors
from tests.raising import breaks


@pytest.mark.parametrize("cpus", [{4711}, set()], ids=str)
def test_cores_that_are_not_there_are_refused(cpus: set[int]) -> None:
    """The system would not pin it, and it would run on any core."""
    kafka: Any = None
    with pytest.raises(UsageProblem, check=breaks("cores of this machine", value=sorted(cpus))):
        Injectors(kafka, ExitStack()).start({}, None, cpus)
