"""The policies that a controller can run, by name. Each implements `core.policy.Policy`.

Other packages register theirs as entry points of the group `qod_magics.policies`: the name is the policy's, the object
a factory without arguments:

    [project.entry-points."qod_magics.policies"]
    my-policy = "my_package.policy:MyPolicy"

A policy needs a `name` and `decide`; it may also `learn`, `place` instances, `explain` itself, and have parameters
(`core.policy`), which follow its name: "henge settle_s=15".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from qod_magics.core.policy import ParameterizedPolicy, Policy
from qod_magics.core.snapshot import nothing
from qod_magics.errors import UsageProblem, nearest
from qod_magics.policies.parameters import Row, assigned, changed, rows, written

#: of sessions and simulations that name no other
DEFAULT_POLICY = "stream-economics-reactive"

#: the paper's, literally: of single snapshots, and of recordings that name none, being older than that key
PAPER_POLICY = "stream-economics"

#: The group of entry points by which other packages add policies.
GROUP = "qod_magics.policies"

#: name -> "module:factory", imported on demand
_POLICIES = {
    "auto": "qod_magics.policies.stack:auto",
    "cameo": "qod_magics.policies.cameo.live:Cameo",
    "d-storm": "qod_magics.policies.d_storm:DStorm",
    "dirigo": "qod_magics.policies.dirigo.live:DirigoLive",
    "fifo": "qod_magics.policies.cameo.live:Fifo",
    "getafix": "qod_magics.policies.getafix.live:LiveGetafix",
    "getafix-everywhere": "qod_magics.policies.getafix.live:Everywhere",
    "henge": "qod_magics.policies.henge:Henge",
    "henge-tuned": "qod_magics.policies.henge:tuned",
    "least-link-load": "qod_magics.policies.stela:least_link_load",
    "most-link-load": "qod_magics.policies.stela:most_link_load",
    "nephele": "qod_magics.policies.nephele.live:Nephele",
    "nephele-fixed-buffers": "qod_magics.policies.nephele.live:FixedGaps",
    "nephele-flush": "qod_magics.policies.nephele.live:Flush",
    "orleans": "qod_magics.policies.cameo.live:Orleans",
    "stela": "qod_magics.policies.stela:Stela",
    "storm-ras": "qod_magics.policies.d_storm:StormRas",
    "storm-re-deal": "qod_magics.policies.stela:storm_re_deal",
    "storm-round-robin": "qod_magics.policies.d_storm:StormRoundRobin",
    "stream-economics": "qod_magics.policies.stream_economics:StreamEconomics",
    "stream-economics-filled": "qod_magics.policies.stream_economics.policy:filled",
    "stream-economics-fitted": "qod_magics.policies.stream_economics.policy:fitted",
    "stream-economics-reactive": "qod_magics.policies.stream_economics.policy:reactive",
}

#: Those of this package that shed load; the others place or scale, and let a backlog grow.
SHEDDING = tuple(sorted(name for name in _POLICIES if name == "auto" or name.startswith((PAPER_POLICY, "getafix"))))

#: Those of this package that act on the maximum latencies of queries; of other packages' it is not known.
BY_LATENCY = frozenset({"auto", "cameo", "d-storm", "dirigo", "henge", "henge-tuned", "nephele"})


def latency_note(policy: str, seconds: float | None) -> str | None:
    """Return a note for the author of a query on whose maximum latency (seconds) this policy does not act; None if it
    does, if there is no maximum, or if the policy is not known."""
    policy = base_name(policy)
    if seconds is None or seconds == float("inf") or policy in BY_LATENCY or policy not in _POLICIES:
        return None
    return (
        f"its --max-latency of {seconds:g} s is measured and shown, and policy {policy} does not act on it: "
        "`%qod policy auto` does"
    )


def lending_note(policy: str, lends: bool) -> str | None:
    """Return what who chooses this policy should know while no query `lends` rows of its keys; None: nothing."""
    if base_name(policy) != "dirigo" or lends:
        return None
    return "it lends nothing: no query was declared with --key COLUMN --lend --parallelism 2 or more"


def base_name(name: str) -> str:
    """Return the name of a policy without its parameters."""
    return name.split(maxsplit=1)[0] if name.strip() else name


def policy(name: str = DEFAULT_POLICY, given: Mapping[str, Any] = nothing()) -> Policy:
    """Return a new instance of the policy called `name`, such as "henge" or "henge settle_s=15".

    Args:
        name: with words PARAMETER=VALUE for those that differ from its defaults.
        given: further parameters, texts or of their types.

    Raises:
        UsageProblem: there is no policy of this name, it has no such parameter, a value is out of range, or its
            factory fails.

    """
    base = base_name(name)
    values = {**assigned(name.split()[1:]), **given}
    made = _made(base)
    if not values:
        return made
    if not isinstance(made, ParameterizedPolicy):
        raise UsageProblem(
            f"policy {base} has no parameters, got {next(iter(values))}; leave it out", name=base, rule="has parameters"
        )
    parameters = changed(made.parameters, values, base)
    return made.with_parameters(parameters, f"{base} {written(parameters, made.parameters)}".rstrip())


def parameters_of(name: str) -> tuple[Row, ...]:
    """Return the parameters of a policy with their values, () if it has none. Raises as `policy`."""
    made = policy(name)
    return rows(made.parameters) if isinstance(made, ParameterizedPolicy) else ()


def _made(name: str) -> Policy:
    if name in _POLICIES:
        made: Policy = factory(_POLICIES[name])()
        return made
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        raise UsageProblem(f"there is no policy {name!r}.{nearest(name, policy_names())}", name=name, rule="exists")
    try:
        made = found.load()()
    except Exception as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise UsageProblem(f"the policy {name!r} ({found.value}) can't be made: {why}") from error
    if not isinstance(made, Policy):
        raise UsageProblem(f"{found.value} returns no policy: it needs a `name` and `decide(snapshot, state)`")
    return made


def is_policy(name: str) -> bool:
    """Return whether `policy` knows this name, whatever its parameters. What other packages registered is only looked
    up for names not of this one."""
    name = base_name(name)
    return name in _POLICIES or name in entry_points(group=GROUP).names


def policy_names() -> tuple[str, ...]:
    """Return the names that `policy` knows, sorted."""
    return tuple(sorted({*_POLICIES, *entry_points(group=GROUP).names}))


def factory(path: str) -> Callable[..., Any]:
    """Return the object that "module:name" names."""
    module, _, attribute = path.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), attribute)
    return found


def factory_of(table: Mapping[str, str], name: str, what: str) -> Callable[..., Any]:
    """The factory that a table has under a name. Raises UsageProblem if it has none; `what`: such as "dispatcher"."""
    if name not in table:
        raise UsageProblem(f"there is no {what} {name!r}.{nearest(name, table)}", name=name, rule="exists")
    return factory(table[name])


__all__ = [
    "BY_LATENCY",
    "DEFAULT_POLICY",
    "GROUP",
    "PAPER_POLICY",
    "SHEDDING",
    "base_name",
    "is_policy",
    "latency_note",
    "lending_note",
    "parameters_of",
    "policy",
    "policy_names",
]
