"""The policies that replicate segments, by name. Each implements `core.segments.ReplicationPolicy`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from qod_magics.core.segments import ReplicationPolicy
from qod_magics.core.wording import hint, show
from qod_magics.errors import UsageProblem
from qod_magics.policies.getafix import Getafix, Parameters, Scarlett, Uniform

#: name -> (factory, its options)
_POLICIES: Mapping[str, tuple[Callable[..., ReplicationPolicy], tuple[str, ...]]] = {
    "getafix": (lambda **options: Getafix(Parameters(**options)), tuple(each.name for each in fields(Parameters))),
    "scarlett": (Scarlett, ("delta",)),
    "uniform": (Uniform, ("copies",)),
}


def replication_policy(name: str, options: Mapping[str, Any] | None = None) -> ReplicationPolicy:
    """A new instance of the policy called `name`.

    Raises:
        UsageProblem: there is no policy of this name, it has no such option, or an option has no such value.

    """
    if name not in _POLICIES:
        raise UsageProblem(
            f"{show(name)} replicates no segments; give one of {', '.join(_POLICIES)}.{hint(name, _POLICIES)}"
        )
    make, known = _POLICIES[name]
    for option in options or {}:
        if option not in known:
            raise UsageProblem(
                f"policy {name} has no option {show(option)}; it has {', '.join(known)}.{hint(option, known)}"
            )
    return make(**(options or {}))


def replication_policy_names() -> tuple[str, ...]:
    """The names that `replication_policy` knows, sorted."""
    return tuple(sorted(_POLICIES))
