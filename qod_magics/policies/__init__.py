"""The policies that a controller can run, by name. Each is a package of its own against `core.policy.Policy`."""

from __future__ import annotations

from importlib import import_module

from qod_magics.core.policy import Policy
from qod_magics.errors import UsageProblem, nearest

#: what a session decides with, and a simulation, when nobody names another
DEFAULT_POLICY = "stream-economics-reactive"

#: the paper's, literally: of recordings that name none, which are older than that key, and of a snapshot by itself
PAPER_POLICY = "stream-economics"

#: name -> "module:what makes it", imported when asked for
_POLICIES = {
    "stream-economics": "qod_magics.policies.stream_economics:StreamEconomics",
    "stream-economics-fitted": "qod_magics.policies.stream_economics.variants:fitted",
    "stream-economics-drained": "qod_magics.policies.stream_economics.variants:drained",
    "stream-economics-filled": "qod_magics.policies.stream_economics.variants:filled",
    "stream-economics-reactive": "qod_magics.policies.stream_economics.variants:reactive",
}


def policy(name: str = DEFAULT_POLICY) -> Policy:
    """A new instance of the policy called `name`; UsageProblem with the nearest name if there is none."""
    try:
        module, _, attribute = _POLICIES[name].partition(":")
    except KeyError:
        raise UsageProblem(f"there is no policy {name!r}.{nearest(name, _POLICIES)}") from None
    made: Policy = getattr(import_module(module), attribute)()
    return made


def policy_names() -> tuple[str, ...]:
    """What `policy` knows, sorted."""
    return tuple(sorted(_POLICIES))


__all__ = ["DEFAULT_POLICY", "PAPER_POLICY", "policy", "policy_names"]
