"""The dispatchers of messages, by name: factories without arguments. Each makes a `core.dispatch.Dispatcher`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qod_magics.core.dispatch import Dispatcher
from qod_magics.errors import UsageProblem, nearest
from qod_magics.policies import cameo

DISPATCHERS: Mapping[str, Callable[[], Dispatcher]] = {
    "cameo": cameo.cameo,
    "cameo-edf": cameo.earliest_deadline,
    "cameo-sjf": cameo.shortest_job,
    "cameo-tokens": cameo.with_tokens,
    "cameo-topology-only": cameo.topology_only,
    "fifo": cameo.fifo,
    "orleans": cameo.orleans,
}


def dispatcher(name: str) -> Dispatcher:
    """A new dispatcher called `name`.

    Raises:
        UsageProblem: there is none of this name.

    """
    if name not in DISPATCHERS:
        raise UsageProblem(f"there is no dispatcher {name!r}.{nearest(name, DISPATCHERS)}")
    return DISPATCHERS[name]()
