"""Variants of Stream Economics that improve on the paper: the parts of each named policy."""

from __future__ import annotations

from qod_magics.policies.stream_economics.evidence.backlog_evidence import BacklogEvidence
from qod_magics.policies.stream_economics.placing.helpful_moves import no_moves, only_helpful
from qod_magics.policies.stream_economics.policy import LearningStreamEconomics
from qod_magics.policies.stream_economics.sharing.filling import max_min_shares


def fitted() -> LearningStreamEconomics:
    """Costs are learned."""
    return LearningStreamEconomics("stream-economics-fitted")


def filled() -> LearningStreamEconomics:
    """As `fitted`; queries of one priority rise together, and nothing moves where it does not fit."""
    return LearningStreamEconomics("stream-economics-filled", moves=only_helpful, sharing=max_min_shares)


def reactive() -> LearningStreamEconomics:
    """As `filled`; load is shed once a backlog confirms it. The default."""
    return LearningStreamEconomics(
        "stream-economics-reactive", moves=only_helpful, sharing=max_min_shares, evidence=BacklogEvidence()
    )


def staying() -> LearningStreamEconomics:
    """As `reactive`; nothing moves. No `--policy` selects it: it decides while another stage of a policy acts."""
    return LearningStreamEconomics(
        "stream-economics-staying", moves=no_moves, sharing=max_min_shares, evidence=BacklogEvidence()
    )
