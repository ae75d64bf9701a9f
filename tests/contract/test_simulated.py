"""The simulator keeps the contract of runtimes."""

from __future__ import annotations

import pytest

from tests.contract.cases import RuntimeContract
from tests.contract.harness import Watch
from tests.contract.simulated import SimulatedHarness


class TestSimulator(RuntimeContract):
    """The cases, in virtual time."""

    @pytest.fixture
    def watch(self) -> Watch:
        """On a cluster of its own for each case."""
        return Watch(SimulatedHarness())
