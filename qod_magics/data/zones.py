"""New York's 263 taxi zones: boroughs, centres, and how busy they are.

The boroughs are the TLC's. The centres and shares of the busiest zones and of the airports are near the real ones
(to about half a kilometre); those of the others are drawn by a seed within the outline of their borough, so do not
read streets from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

ZONES = 263
JFK, LAGUARDIA, NEWARK = 132, 138, 1

#: (west, south, east, north), degrees: every centre and every coordinate of a trip lies inside
NEW_YORK = (-74.27, 40.49, -73.69, 40.92)

_MANHATTAN = """4 12 13 24 41 42 43 45 48 50 68 74 75 79 87 88 90 100 103 104 105 107 113 114 116 120 125 127 128 137
    140 141 142 143 144 148 151 152 153 158 161 162 163 164 166 170 186 194 202 209 211 224 229 230 231 232 233 234
    236 237 238 239 243 244 246 249 261 262 263"""
_BRONX = """3 18 20 31 32 46 47 51 58 59 60 69 78 81 94 119 126 136 147 159 167 168 169 174 182 183 184 185 199 200
    208 212 213 220 235 240 241 242 247 248 250 254 259"""
_BROOKLYN = """11 14 17 21 22 25 26 29 33 34 35 36 37 39 40 49 52 54 55 61 62 63 65 66 67 71 72 76 77 80 85 89 91 97
    106 108 111 112 123 133 149 150 154 155 165 177 178 181 188 189 190 195 210 217 222 225 227 228 255 256 257"""
_STATEN_ISLAND = "5 6 23 44 84 99 109 110 115 118 156 172 176 187 204 206 214 221 245 251"

#: zone -> (longitude, latitude, share of all pick-ups)
_KNOWN = {
    237: (-73.966, 40.769, 0.047),
    161: (-73.978, 40.758, 0.046),
    132: (-73.787, 40.645, 0.045),
    236: (-73.957, 40.780, 0.042),
    162: (-73.972, 40.756, 0.035),
    186: (-73.993, 40.749, 0.034),
    230: (-73.984, 40.760, 0.034),
    142: (-73.982, 40.772, 0.033),
    138: (-73.874, 40.774, 0.030),
    239: (-73.979, 40.784, 0.028),
    170: (-73.978, 40.747, 0.028),
    163: (-73.978, 40.764, 0.028),
    234: (-73.991, 40.740, 0.027),
    48: (-73.990, 40.762, 0.026),
    68: (-74.000, 40.748, 0.025),
    141: (-73.960, 40.767, 0.024),
    79: (-73.986, 40.728, 0.023),
    164: (-73.985, 40.748, 0.022),
    249: (-74.003, 40.735, 0.022),
    107: (-73.984, 40.737, 0.021),
    238: (-73.971, 40.792, 0.020),
    263: (-73.951, 40.779, 0.019),
    140: (-73.955, 40.765, 0.018),
    229: (-73.965, 40.757, 0.018),
    100: (-73.989, 40.754, 0.017),
    90: (-73.997, 40.742, 0.017),
    246: (-74.004, 40.753, 0.016),
    113: (-73.994, 40.732, 0.015),
    43: (-73.966, 40.782, 0.014),
    231: (-74.008, 40.718, 0.014),
    1: (-74.174, 40.690, 0.0004),
}

#: kilometres per degree at this latitude
KM_PER_LONGITUDE, KM_PER_LATITUDE = 84.4, 111.0


@dataclass(frozen=True)
class _Borough:
    """An outline: everything within `half_width` degrees of the line between two (longitude, latitude) ends."""

    name: str
    start: tuple[float, float]
    end: tuple[float, float]
    half_width: float
    share: float  #: of all pick-ups, for its zones not in _KNOWN


_BOROUGHS = {
    "M": _Borough("Manhattan", (-74.008, 40.712), (-73.930, 40.862), 0.010, 0.160),
    "Q": _Borough("Queens", (-73.930, 40.740), (-73.760, 40.690), 0.040, 0.030),
    "K": _Borough("Brooklyn", (-73.970, 40.710), (-73.960, 40.600), 0.045, 0.028),
    "X": _Borough("Bronx", (-73.910, 40.830), (-73.850, 40.875), 0.025, 0.005),
    "S": _Borough("Staten Island", (-74.200, 40.530), (-74.090, 40.620), 0.025, 0.0002),
    "E": _Borough("EWR", (-74.174, 40.690), (-74.174, 40.690), 0.0, 0.0),
}


def _letters() -> tuple[str, ...]:
    """Return the borough of each zone, by zone number - 1."""
    letters = ["Q"] * ZONES
    for letter, zones in (("M", _MANHATTAN), ("X", _BRONX), ("K", _BROOKLYN), ("S", _STATEN_ISLAND), ("E", "1")):
        for zone in zones.split():
            letters[int(zone) - 1] = letter
    return tuple(letters)


@lru_cache(maxsize=8)
def zone_centroids(seed: int = 0) -> pa.Table:
    """Return the 263 zones: LocationID (1..263), borough, longitude, latitude (degrees), share (of pick-ups, sums to
    1).

    The same table for the same seed.
    """
    rng = np.random.default_rng([seed, 263])
    letters = _letters()
    places = np.empty((ZONES, 2))
    shares = np.empty(ZONES)
    for letter, borough in _BOROUGHS.items():
        members = np.array([index for index in range(ZONES) if letters[index] == letter])
        start, end = np.array(borough.start), np.array(borough.end)
        along = rng.uniform(0.0, 1.0, (len(members), 1))
        places[members] = start + along * (end - start) + rng.uniform(-1, 1, (len(members), 2)) * borough.half_width
        busy = rng.lognormal(0.0, 1.0, len(members))
        shares[members] = borough.share * busy / busy.sum()
    for zone, (longitude, latitude, share) in _KNOWN.items():
        places[zone - 1] = longitude, latitude
        shares[zone - 1] = share
    places = np.round(places, 5)
    return pa.table(
        {
            "LocationID": pa.array(np.arange(1, ZONES + 1), pa.int32()),
            "borough": [_BOROUGHS[letter].name for letter in letters],
            "longitude": places[:, 0],
            "latitude": places[:, 1],
            "share": shares / shares.sum(),
        }
    )
