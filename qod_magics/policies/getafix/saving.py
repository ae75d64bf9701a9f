"""What fewer copies save in a public cloud: the estimate of the source, section 4.4. Pure, exact."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

HOURS_OF_A_YEAR = 24 * 365
GB_OF_A_TB = 1000


@dataclass(frozen=True, slots=True)
class Saving:
    """Memory that fewer copies of the same hot data leave free, and its price."""

    terabytes: Fraction
    usd_per_hour: Fraction

    @property
    def usd_per_year(self) -> Fraction:
        """The price of a year of 365 days."""
        return self.usd_per_hour * HOURS_OF_A_YEAR


def saving(hot_tb: Fraction, factor: Fraction, other: Fraction, usd_per_gb_hour: Fraction) -> Saving:
    """Saved by replication factor `factor` instead of `other`, of hot data in TB, at a price per GB and hour."""
    terabytes = hot_tb * (other - factor)
    return Saving(terabytes, terabytes * GB_OF_A_TB * usd_per_gb_hour)
