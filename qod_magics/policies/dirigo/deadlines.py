"""When the execution of a message should end: earliest deadline first (2.2). Pure."""

from __future__ import annotations

from qod_magics.core.dispatch import Message, Topology

NEVER = 1 << 60  #: deadline without a latency target, ns


class Deadlines:
    """Deadlines from targets and costs after an operator; those costs are learned: the largest seen counts.

    The time of a message that waits for the end of its window is that at which the end is due: later by what event time
    still lacks (the frontier time, with event time as fast as the clock).
    """

    def __init__(self, topology: Topology) -> None:
        self._operators = topology.operators
        self._costs = [0] * len(topology.operators)
        self._paths: dict[int, int] = {}

    def __call__(self, message: Message) -> int:
        """The deadline, t + L - C_path, ns (Eq. 1); NEVER without a target."""
        operator = message.operator
        if message.cost > self._costs[operator]:
            self._costs[operator] = message.cost
            self._paths.clear()
        info = self._operators[operator]
        if not info.max_latency:
            return NEVER
        time = message.observed
        if info.slide:
            event_time = message.event_time if message.event_time >= 0 else message.progress
            time += (info.origin - event_time) % info.slide
        return time + info.max_latency - self.after(operator)

    def after(self, operator: int) -> int:
        """C_path: the largest sum of costs on a path behind an operator, ns."""
        found = self._paths.get(operator)
        if found is None:
            targets = self._operators[operator].targets
            found = max((self._costs[target] + self.after(target) for target in targets), default=0)
            self._paths[operator] = found
        return found
