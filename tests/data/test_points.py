from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.data import POINT_SCHEMA, generate_points, point_labels, reference_points
from qod_magics.errors import ScenarioError


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
    with pytest.raises(ScenarioError, match="'label'"):
        generate_points(3, 1, columns=["label"])
    assert POINT_SCHEMA == "id INT, ts TIMESTAMP, x DOUBLE, y DOUBLE, z DOUBLE"
