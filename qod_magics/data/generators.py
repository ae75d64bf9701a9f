"""Generated rows: yellow taxi trips, and 3-D points for a k-nearest-neighbours classifier. Seeded.

Trips have the columns of the TLC's files, with realistic distributions and dependencies: the hour sets the traffic;
zones are skewed as in the city, and near ones attract more; the distance is a noisy taxicab distance; longer trips are
faster; the fare follows the TLC's meter (flat to and from JFK); surcharges follow the TLC's rules; tips follow the
payment. All sums add up to the cent. Points come from Gaussian clusters, with labels and a reference set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from qod_magics.data.spec import COORDINATE_COLUMNS, POINT_COLUMNS, POINT_TYPES, TRIP_COLUMNS, ddl, trip_schema

# --- Taxi zones -------------------------------------------------------------------------------------------------------
# The boroughs are the TLC's. The centres and shares of the busiest zones and of the airports are near the real ones
# (to about half a kilometre); those of the others are drawn by a seed within the outline of their borough, so do not
# read streets from them.

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


Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_Mask = NDArray[np.bool_]

FIRST_PICKUP = np.datetime64("2024-05-06T00:00:00", "s")  #: a Monday
_KM_PER_MILE = 1.609344
CARD, CASH, NO_CHARGE, DISPUTE = 1, 2, 3, 4
STANDARD, TO_JFK, TO_NEWARK, NEGOTIATED = 1, 2, 3, 5

#: pick-ups by hour of the day, relative
_BY_HOUR = np.array([28, 20, 14, 10, 7, 8, 16, 32, 44, 48, 50, 53, 56, 58, 62, 65, 66, 72, 76, 70, 62, 60, 54, 42.0])
#: miles/h of a trip of one mile, by hour of the day
_SPEED = np.array(
    [12.5, 13, 13.5, 14, 15, 15, 12.5, 9.5, 8.2, 8, 8, 7.8, 7.6, 7.6, 7.4, 7.2, 7.2, 7.4, 8, 9, 9.6, 10, 10.5, 11.5]
)


@dataclass(frozen=True)
class _Ways:
    """Route and duration of each trip."""

    pickup_zone: _Ints
    dropoff_zone: _Ints
    pickup: Floats  #: rows x (longitude, latitude)
    dropoff: Floats
    miles: Floats
    seconds: _Ints
    hour: _Ints
    weekday: _Ints  #: 0 is Monday
    pickup_s: _Ints  #: since FIRST_PICKUP


def generate_trips(rows: int, seed: int, columns: Sequence[str] | None = None) -> pa.Table:
    """`rows` trips in order of pick-up, within one week of May 2024; the same ones for the same rows and seed.

    `columns`: any of TRIP_COLUMNS and COORDINATE_COLUMNS, in the order given; TRIP_COLUMNS when None. Distances are
    miles, amounts dollars, times naive local times to the second. Raises ScenarioError for an unknown column.
    """
    chosen = TRIP_COLUMNS if columns is None else tuple(columns)
    trip_schema(chosen)  # raises for unknown ones
    rng = np.random.default_rng([seed, 19])
    ways = _ways(rng, rows)
    made = {**_journeys(rng, ways), **_payments(rng, ways)}
    return pa.table({column: made[column] for column in chosen})


def _ways(rng: np.random.Generator, rows: int) -> _Ways:
    zones = zone_centroids()
    centres = np.column_stack([zones["longitude"].to_numpy(), zones["latitude"].to_numpy()])
    shares = zones["share"].to_numpy()
    pickup_s = np.sort(_pickup_seconds(rng, rows))
    hour = (pickup_s // 3600) % 24
    pickup_index = rng.choice(len(shares), rows, p=shares)
    dropoff_index = _attracted(rng, centres, shares, pickup_index)
    pickup, dropoff = _around(rng, centres[pickup_index]), _around(rng, centres[dropoff_index])
    km = np.abs(dropoff - pickup) @ np.array([KM_PER_LONGITUDE, KM_PER_LATITUDE])
    miles = np.round(np.maximum(km / _KM_PER_MILE * rng.lognormal(0.05, 0.12, rows), 0.15), 2)
    speed = _SPEED[hour] * (1 + 0.45 * np.log1p(miles)) / (1 + 0.45 * np.log(2)) * rng.lognormal(0.0, 0.18, rows)
    seconds = np.clip(miles / np.minimum(speed, 55.0) * 3600 + 45, 60, 3 * 3600).astype(np.int64)
    return _Ways(
        pickup_zone=pickup_index + 1,
        dropoff_zone=dropoff_index + 1,
        pickup=pickup,
        dropoff=dropoff,
        miles=miles,
        seconds=seconds,
        hour=hour,
        weekday=pickup_s // (24 * 3600),
        pickup_s=pickup_s,
    )


def _pickup_seconds(rng: np.random.Generator, rows: int) -> _Ints:
    hours = rng.choice(24, rows, p=_BY_HOUR / _BY_HOUR.sum())
    days = rng.integers(0, 7, rows)
    return np.asarray(days * 24 * 3600 + hours * 3600 + rng.integers(0, 3600, rows), np.int64)


def _attracted(rng: np.random.Generator, centres: Floats, shares: Floats, origin: _Ints) -> _Ints:
    """Drop-off zones: 60 % drawn by proximity (exponential, 3 km) and popularity, 40 % by popularity alone."""
    difference = (centres[:, None, :] - centres[None, :, :]) * np.array([KM_PER_LONGITUDE, KM_PER_LATITUDE])
    pull = np.sqrt(shares)[None, :] * np.exp(-np.hypot(difference[..., 0], difference[..., 1]) / 3.0)
    pull /= pull.sum(axis=1, keepdims=True)
    cumulative = np.cumsum(0.6 * pull + 0.4 * shares[None, :], axis=1)
    cumulative /= cumulative[:, -1:]
    # one search for all origins: the row of origin k lies in (k, k + 1]
    flat = (cumulative + np.arange(len(shares))[:, None]).ravel()
    found = np.searchsorted(flat, origin + rng.uniform(0.0, 1.0, len(origin)), side="right")
    return np.asarray(np.clip(found - origin * len(shares), 0, len(shares) - 1), np.int64)


def _around(rng: np.random.Generator, centres: Floats) -> Floats:
    """Return a place within a few hundred metres of each centre, degrees."""
    west, south, east, north = NEW_YORK
    places = centres + rng.normal(0.0, 0.0028, centres.shape)
    return np.asarray(np.round(np.clip(places, (west, south), (east, north)), 6), np.float64)


def _journeys(rng: np.random.Generator, ways: _Ways) -> dict[str, Any]:
    rows = len(ways.miles)
    pickup_time = FIRST_PICKUP + ways.pickup_s.astype("timedelta64[s]")
    dropoff_time = pickup_time + ways.seconds.astype("timedelta64[s]")
    coordinates = dict(zip(COORDINATE_COLUMNS, (*ways.pickup.T, *ways.dropoff.T), strict=True))
    return {
        "VendorID": _int32(rng.choice([1, 2], rows, p=[0.24, 0.76])),
        "tpep_pickup_datetime": pa.array(pickup_time.astype("datetime64[us]")),
        "tpep_dropoff_datetime": pa.array(dropoff_time.astype("datetime64[us]")),
        "passenger_count": _int32(rng.choice([1, 2, 3, 4, 5, 6], rows, p=[0.75, 0.15, 0.04, 0.03, 0.02, 0.01])),
        "trip_distance": ways.miles,
        "store_and_fwd_flag": pa.array(np.where(rng.uniform(size=rows) < 0.006, "Y", "N")),
        "PULocationID": _int32(ways.pickup_zone),
        "DOLocationID": _int32(ways.dropoff_zone),
        **{column: np.ascontiguousarray(values) for column, values in coordinates.items()},
    }


def _payments(rng: np.random.Generator, ways: _Ways) -> dict[str, Any]:
    rows = len(ways.miles)
    manhattan = np.array([False, *(name == "Manhattan" for name in zone_centroids()["borough"].to_pylist())])
    in_manhattan = manhattan[ways.pickup_zone], manhattan[ways.dropoff_zone]
    rate_code = _rate_codes(rng, ways, in_manhattan)
    fare = _fares(rng, ways, rate_code)
    rush = (ways.weekday < 5) & (ways.hour >= 16) & (ways.hour < 20)
    night = (ways.hour >= 20) | (ways.hour < 6)
    extra = np.where(rate_code == TO_JFK, np.where(rush, 5.0, 0.0), np.where(rush, 2.5, np.where(night, 1.0, 0.0)))
    tax = np.full(rows, 0.5)
    improvement = np.full(rows, 1.0)
    congestion = np.where(in_manhattan[0] | in_manhattan[1], 2.5, 0.0)
    from_airport = np.isin(ways.pickup_zone, (JFK, LAGUARDIA))
    airport = np.where(from_airport, 1.75, 0.0)
    tolls = _tolls(rng, ways)
    payment = rng.choice([CARD, CASH, NO_CHARGE, DISPUTE], rows, p=[0.80, 0.18, 0.006, 0.014])
    before_tip = fare + extra + tax + improvement + congestion + airport + tolls
    tip = _tips(rng, payment, before_tip)
    return {
        "RatecodeID": _int32(rate_code),
        "payment_type": _int32(payment),
        "fare_amount": fare,
        "extra": extra,
        "mta_tax": tax,
        "tip_amount": tip,
        "tolls_amount": tolls,
        "improvement_surcharge": improvement,
        "total_amount": np.round(before_tip + tip, 2),
        "congestion_surcharge": congestion,
        "airport_fee": airport,
    }


def _rate_codes(rng: np.random.Generator, ways: _Ways, in_manhattan: tuple[_Mask, _Mask]) -> _Ints:
    from_manhattan, to_manhattan = in_manhattan
    jfk = ((ways.pickup_zone == JFK) & to_manhattan) | (from_manhattan & (ways.dropoff_zone == JFK))
    newark = (ways.dropoff_zone == NEWARK) & (ways.pickup_zone != NEWARK)
    code = np.select([jfk, newark], [TO_JFK, TO_NEWARK], STANDARD)
    return np.where(rng.uniform(size=len(code)) < 0.005, NEGOTIATED, code)


def _fares(rng: np.random.Generator, ways: _Ways, rate_code: _Ints) -> Floats:
    """Return the meter: 3 dollars, and 0.70 for each fifth of a mile or, in slow traffic, each minute; flat to JFK."""
    speed = ways.miles / ways.seconds * 3600
    slow = np.clip((14 - speed) / 14, 0.0, 1.0)
    units = 5 * ways.miles * (1 - slow) + ways.seconds / 60 * slow
    metered = 3.0 + 0.7 * np.ceil(units)
    negotiated = np.round(metered * rng.uniform(0.9, 1.4, len(metered)), 0)
    fare = np.select(
        [rate_code == TO_JFK, rate_code == TO_NEWARK, rate_code == NEGOTIATED],
        [70.0, metered + 20, negotiated],
        metered,
    )
    return np.round(fare, 2)


def _tolls(rng: np.random.Generator, ways: _Ways) -> Floats:
    ends = np.stack([ways.pickup_zone, ways.dropoff_zone])
    newark = (ends == NEWARK).any(axis=0) & (ways.miles > 3)
    airport = np.isin(ends, (JFK, LAGUARDIA)).any(axis=0) & (ways.miles > 5)
    bridge = rng.uniform(size=len(ways.miles)) < np.where(airport, 0.55, np.where(ways.miles > 7, 0.25, 0.004))
    return np.select([newark, bridge], [15.38, 6.94], 0.0)


def _tips(rng: np.random.Generator, payment: _Ints, before_tip: Floats) -> Floats:
    """Card tips: mostly a preset of 15 to 30 %, some a round sum, some nothing. Cash tips are not recorded."""
    rows = len(payment)
    button = rng.choice([0.20, 0.25, 0.30, 0.15], rows, p=[0.70, 0.17, 0.08, 0.05]) * before_tip
    round_sum = rng.choice([1.0, 2.0, 3.0, 5.0], rows, p=[0.35, 0.35, 0.2, 0.1])
    way = rng.uniform(size=rows)
    tip = np.select([way < 0.74, way < 0.95], [button, round_sum], 0.0)
    return np.asarray(np.round(np.where(payment == CARD, tip, 0.0), 2), np.float64)


def _int32(values: _Ints) -> pa.Array:
    return pa.array(values.astype(np.int32))


_BOX = 100.0  #: cluster centres lie in a cube of this side
_FIRST_POINT = np.datetime64("2024-05-06T00:00:00", "us")


def generate_points(rows: int, seed: int, clusters: int = 8, columns: Sequence[str] | None = None) -> pa.Table:
    """`rows` points to classify: id (0, 1 ...), ts (one per millisecond), x, y, z; labels are withheld.

    The same points for the same rows, seed and clusters. Raises ScenarioError for an unknown column.
    """
    chosen = POINT_COLUMNS if columns is None else tuple(columns)
    ddl(POINT_TYPES, chosen)  # raises for unknown ones
    places, _ = _draw(rows, seed, clusters, 1)
    made = {
        "id": pa.array(np.arange(rows), pa.int32()),
        "ts": pa.array(_FIRST_POINT + np.arange(rows).astype("timedelta64[ms]")),
        **dict(zip("xyz", np.ascontiguousarray(places.T), strict=True)),
    }
    return pa.table({column: made[column] for column in chosen})


def point_labels(rows: int, seed: int, clusters: int = 8) -> NDArray[np.int64]:
    """Return the hidden labels, 0 to clusters - 1, of `generate_points` with the same arguments; by id."""
    return _draw(rows, seed, clusters, 1)[1]


def reference_points(rows: int, seed: int, clusters: int = 8) -> pa.Table:
    """Return the classifier's reference set: `rows` other points of the same clusters, as x, y, z, label."""
    places, labels = _draw(rows, seed, clusters, 2)
    return pa.table({**dict(zip("xyz", np.ascontiguousarray(places.T), strict=True)), "label": labels.astype(np.int32)})


def _draw(rows: int, seed: int, clusters: int, stream: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return points (rows x 3, three digits) and their clusters. Clusters depend on the seed alone, draws on `stream`
    too."""
    shape = np.random.default_rng([seed, clusters, 0])
    centres = shape.uniform(0.0, _BOX, (clusters, 3))
    spreads = shape.uniform(3.0, 9.0, clusters)
    weights = shape.dirichlet(np.full(clusters, 4.0))
    rng = np.random.default_rng([seed, clusters, stream])
    labels = rng.choice(clusters, rows, p=weights)
    return np.round(centres[labels] + rng.normal(size=(rows, 3)) * spreads[labels, None], 3), labels
