"""The policies of channels with output buffers, by name. Each implements `core.channel_qos.ChannelPolicy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qod_magics.core.channel_qos import ChannelPolicy
from qod_magics.policies.lookup import factory_of

#: name -> "module:factory", imported on demand
_POLICIES = {
    "nephele": "qod_magics.policies.nephele.manager:nephele",
    "nephele-fixed-buffers": "qod_magics.policies.nephele.manager:fixed_buffers",
    "nephele-flush": "qod_magics.policies.nephele.manager:flush",
}


def channel_policy(name: str, parameters: Mapping[str, Any] | None = None) -> ChannelPolicy:
    """A new policy called `name`. Raises UsageProblem if there is none, or for a parameter that it has not."""
    made: ChannelPolicy = factory_of(_POLICIES, name, "policy of channels")(parameters)
    return made


def channel_policy_names() -> tuple[str, ...]:
    """The names that `channel_policy` knows, sorted."""
    return tuple(sorted(_POLICIES))
