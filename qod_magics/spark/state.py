"""Which plans keep state between batches: aggregations, deduplication, joins of two streams, arbitrary state. Pure."""

from __future__ import annotations

import re

#: Operators of a streaming query's physical plan that read or write a state store.
_KEEPS_STATE = re.compile(
    r"\b(\w*StateStore\w*|Streaming(?:Deduplicate|SymmetricHashJoin|GlobalLimit)\w*|\w+WithState\w*)\b"
)


def keeps_state(plan: str) -> bool:
    """Whether a physical plan, as `explain()` shows it of a streaming DataFrame, has an operator with state."""
    return _KEEPS_STATE.search(plan) is not None
