"""The policies that a controller can run, by name. Each is a package of its own against `core.policy.Policy`.

Other packages add theirs by an entry point of the group `qod_magics.policies`, whose name is the policy's and whose
object, called without arguments, makes one:

    [project.entry-points."qod_magics.policies"]
    my-policy = "my_package.policy:MyPolicy"

It needs a `name` and `decide`; it may `learn`, `place` instances and `explain` itself, too (`core.policy`).
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from qod_magics.core.policy import Policy
from qod_magics.errors import UsageProblem, nearest

#: what a session decides with, and a simulation, when nobody names another
DEFAULT_POLICY = "stream-economics-reactive"

#: the paper's, literally: of recordings that name none, which are older than that key, and of a snapshot by itself
PAPER_POLICY = "stream-economics"

#: The group of entry points by which other packages add policies.
GROUP = "qod_magics.policies"

#: name -> "module:what makes it", imported when asked for
_POLICIES = {
    "stream-economics": "qod_magics.policies.stream_economics:StreamEconomics",
    "stream-economics-fitted": "qod_magics.policies.stream_economics.variants:fitted",
    "stream-economics-filled": "qod_magics.policies.stream_economics.variants:filled",
    "stream-economics-reactive": "qod_magics.policies.stream_economics.variants:reactive",
}


def policy(name: str = DEFAULT_POLICY) -> Policy:
    """A new instance of the policy called `name`.

    Raises:
        UsageProblem: there is none of this name, or the package that has it fails to make it.

    """
    if name in _POLICIES:
        module, _, attribute = _POLICIES[name].partition(":")
        made: Policy = getattr(import_module(module), attribute)()
        return made
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        raise UsageProblem(f"there is no policy {name!r}.{nearest(name, policy_names())}")
    try:
        made = found.load()()
    except Exception as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise UsageProblem(f"the policy {name!r} ({found.value}) can't be made: {why}") from error
    if not isinstance(made, Policy):
        raise UsageProblem(f"{found.value} makes no policy: it needs a `name` and `decide(snapshot, state)`")
    return made


def policy_names() -> tuple[str, ...]:
    """What `policy` knows, sorted."""
    return tuple(sorted({*_POLICIES, *entry_points(group=GROUP).names}))


__all__ = ["DEFAULT_POLICY", "GROUP", "PAPER_POLICY", "policy", "policy_names"]
