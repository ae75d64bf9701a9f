"""Generated trips and points: seeded, of the right columns, with the dependencies that they claim."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.data import (
    POINT_SCHEMA,
    generate_points,
    generate_trips,
    point_labels,
    reference_points,
    trip_schema,
    zone_centroids,
)
from qod_magics.data.generators import JFK, LAGUARDIA, NEW_YORK, NEWARK
from qod_magics.data.spec import COORDINATE_COLUMNS, TRIP_COLUMNS, TRIP_SCHEMA, TRIP_STREAM_SCHEMA
from qod_magics.errors import ScenarioError
from tests.raising import breaks


@pytest.fixture(scope="module")
def trips() -> pd.DataFrame:
    return generate_trips(30_000, 5, TRIP_COLUMNS + COORDINATE_COLUMNS).to_pandas()


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 300))
def test_the_same_rows_for_the_same_seed(seed: int, rows: int) -> None:
    assert generate_trips(rows, seed).equals(generate_trips(rows, seed))
    assert generate_trips(rows, seed).num_rows == rows


def test_other_rows_for_another_seed() -> None:
    assert not generate_trips(100, 1).equals(generate_trips(100, 2))


def test_columns_come_as_asked_and_do_not_change_each_other() -> None:
    whole = generate_trips(50, 3)
    some = generate_trips(50, 3, ["total_amount", "pickup_longitude", "PULocationID"])
    assert whole.column_names == list(TRIP_COLUMNS)
    assert some.column_names == ["total_amount", "pickup_longitude", "PULocationID"]
    assert some["PULocationID"].equals(whole["PULocationID"])
    with pytest.raises(ScenarioError, check=breaks("exists", name="fare")):
        generate_trips(1, 3, ["fare"])


def test_amounts_add_up_to_the_cent(trips: pd.DataFrame) -> None:
    parts = ["fare_amount", "extra", "mta_tax", "tip_amount", "tolls_amount"]
    parts += ["improvement_surcharge", "congestion_surcharge", "airport_fee"]
    assert ((trips[parts].sum(axis=1) - trips.total_amount).abs() < 0.005).all()
    assert (trips.fare_amount > 0).all()


def test_distances_speeds_and_times_are_those_of_a_city(trips: pd.DataFrame) -> None:
    hours = (trips.tpep_dropoff_datetime - trips.tpep_pickup_datetime).dt.total_seconds() / 3600
    assert hours.between(60 / 3600, 3).all()
    assert (trips.trip_distance / hours).max() < 60
    assert 6 < (trips.trip_distance / hours).median() < 14
    assert 1.3 < trips.trip_distance.median() < 3
    assert 10 < trips.fare_amount.median() < 16
    assert trips.tpep_pickup_datetime.is_monotonic_increasing
    at_night = trips.tpep_pickup_datetime.dt.hour.between(2, 4)
    assert (trips.trip_distance / hours)[at_night].mean() > (trips.trip_distance / hours)[~at_night].mean()


def test_fares_rise_with_the_way(trips: pd.DataFrame) -> None:
    metered = trips[trips.RatecodeID == 1]
    assert metered.fare_amount.corr(metered.trip_distance) > 0.9
    assert (trips[trips.RatecodeID == 2].fare_amount == 70).all()
    assert trips[trips.RatecodeID == 2][["PULocationID", "DOLocationID"]].eq(JFK).any(axis=1).all()


def test_few_zones_have_most_trips(trips: pd.DataFrame) -> None:
    shares = trips.PULocationID.value_counts(normalize=True)
    assert shares.head(30).sum() > 0.6
    assert len(shares) > 150
    manhattan = zone_centroids().to_pandas().set_index("LocationID").borough == "Manhattan"
    assert trips.PULocationID.map(manhattan).mean() > 0.8


def test_near_zones_attract_more(trips: pd.DataFrame) -> None:
    by_chance = trips.DOLocationID.sample(frac=1.0, random_state=1, ignore_index=True)
    centres = zone_centroids().to_pandas().set_index("LocationID")[["longitude", "latitude"]]
    start = centres.loc[trips.PULocationID].to_numpy()
    way = np.abs(centres.loc[trips.DOLocationID].to_numpy() - start).sum(axis=1).mean()
    assert way < 0.9 * np.abs(centres.loc[by_chance].to_numpy() - start).sum(axis=1).mean()


def test_tips_go_with_cards(trips: pd.DataFrame) -> None:
    assert (trips[trips.payment_type != 1].tip_amount == 0).all()
    cards = trips[trips.payment_type == 1]
    assert (cards.tip_amount > 0).mean() > 0.9
    assert 0.15 < cards.tip_amount.sum() / cards.fare_amount.sum() < 0.35


def test_airport_fees_are_for_pickups_there(trips: pd.DataFrame) -> None:
    assert ((trips.airport_fee > 0) == trips.PULocationID.isin([JFK, LAGUARDIA])).all()


def test_places_lie_near_their_zone_and_in_new_york(trips: pd.DataFrame) -> None:
    west, south, east, north = NEW_YORK
    centres = zone_centroids().to_pandas().set_index("LocationID")
    for end, zone in (("pickup", "PULocationID"), ("dropoff", "DOLocationID")):
        longitude, latitude = trips[f"{end}_longitude"], trips[f"{end}_latitude"]
        assert longitude.between(west, east).all()
        assert latitude.between(south, north).all()
        assert (longitude.to_numpy() - centres.loc[trips[zone], "longitude"].to_numpy()).std() < 0.005
        assert (latitude.to_numpy() - centres.loc[trips[zone], "latitude"].to_numpy()).std() < 0.005


def test_the_zones_are_the_tlc_s() -> None:
    zones = zone_centroids().to_pandas()
    assert zones.LocationID.tolist() == list(range(1, 264))
    assert zones.borough.value_counts().to_dict() == {
        "Manhattan": 69,
        "Queens": 69,
        "Brooklyn": 61,
        "Bronx": 43,
        "Staten Island": 20,
        "EWR": 1,
    }
    by_id = zones.set_index("LocationID")
    assert by_id.borough[[NEWARK, JFK, LAGUARDIA, 237]].tolist() == ["EWR", "Queens", "Queens", "Manhattan"]
    assert zones.share.sum() == pytest.approx(1)
    west, south, east, north = NEW_YORK
    assert zones.longitude.between(west, east).all()
    assert zones.latitude.between(south, north).all()


def test_zones_hang_on_the_seed_alone() -> None:
    assert zone_centroids(3).equals(zone_centroids(3))
    assert not zone_centroids(3).equals(zone_centroids(4))


def test_schemas_are_those_of_the_columns() -> None:
    assert TRIP_SCHEMA.startswith("VendorID INT, tpep_pickup_datetime TIMESTAMP, ")
    assert TRIP_SCHEMA.count(",") == len(TRIP_COLUMNS) - 1
    assert TRIP_STREAM_SCHEMA in trip_schema(TRIP_STREAM_SCHEMA.replace(",", "").split()[::2])
    assert trip_schema(["pickup_latitude"]) == "pickup_latitude DOUBLE"
    with pytest.raises(ScenarioError, check=breaks("exists", name="DOLocation")):
        trip_schema(["DOLocation"])


def places(frame: pd.DataFrame) -> np.ndarray:
    return frame[["x", "y", "z"]].to_numpy()


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(1, 20))
def test_the_same_points_for_the_same_seed(seed: int, rows: int, clusters: int) -> None:
    points = generate_points(rows, seed, clusters)
    assert points.equals(generate_points(rows, seed, clusters))
    assert points.column_names == ["id", "ts", "x", "y", "z"]
    labels = point_labels(rows, seed, clusters)
    assert len(labels) == rows
    assert set(labels.tolist()) <= set(range(clusters))


def test_the_reference_set_tells_the_hidden_labels() -> None:
    """A nearest-neighbour classifier does far better than chance, and not perfectly: clusters overlap."""
    points, labels = generate_points(500, 4).to_pandas(), point_labels(500, 4)
    reference = reference_points(2000, 4).to_pandas()
    distance = np.linalg.norm(places(points)[:, None, :] - places(reference)[None, :, :], axis=2)
    found = reference.label.to_numpy()[distance.argmin(axis=1)]
    assert 0.8 < (found == labels).mean() <= 1
    assert not set(map(tuple, places(points))) & set(map(tuple, places(reference)))


def test_other_seeds_have_other_clusters() -> None:
    first, other = reference_points(2000, 1).to_pandas(), reference_points(2000, 2).to_pandas()
    assert not np.allclose(places(first).mean(axis=0), places(other).mean(axis=0), atol=0.5)


def test_columns_can_be_chosen() -> None:
    assert generate_points(3, 1, columns=["z", "x"]).column_names == ["z", "x"]
    with pytest.raises(ScenarioError, check=breaks("exists", name="label")):
        generate_points(3, 1, columns=["label"])
    assert POINT_SCHEMA == "id INT, ts TIMESTAMP, x DOUBLE, y DOUBLE, z DOUBLE"
