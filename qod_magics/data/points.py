"""3-D points from Gaussian clusters for a k-nearest-neighbours classifier: stream, labels, reference set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from qod_magics.data.schema import POINT_COLUMNS, POINT_TYPES, ddl

BOX = 100.0  #: cluster centres lie in a cube of this side
FIRST_POINT = np.datetime64("2024-05-06T00:00:00", "us")


def generate_points(rows: int, seed: int, clusters: int = 8, columns: Sequence[str] | None = None) -> pa.Table:
    """`rows` points to classify: id (0, 1 ...), ts (one per millisecond), x, y, z; labels are withheld.

    The same points for the same rows, seed and clusters. Raises ScenarioError for an unknown column.
    """
    chosen = POINT_COLUMNS if columns is None else tuple(columns)
    ddl(POINT_TYPES, chosen)  # raises for unknown ones
    places, _ = _draw(rows, seed, clusters, 1)
    made = {
        "id": pa.array(np.arange(rows), pa.int32()),
        "ts": pa.array(FIRST_POINT + np.arange(rows).astype("timedelta64[ms]")),
        **dict(zip("xyz", np.ascontiguousarray(places.T), strict=True)),
    }
    return pa.table({column: made[column] for column in chosen})


def point_labels(rows: int, seed: int, clusters: int = 8) -> NDArray[np.int64]:
    """The hidden labels, 0 to clusters - 1, of `generate_points` with the same arguments; by id."""
    return _draw(rows, seed, clusters, 1)[1]


def reference_points(rows: int, seed: int, clusters: int = 8) -> pa.Table:
    """The classifier's reference set: `rows` other points of the same clusters, as x, y, z, label."""
    places, labels = _draw(rows, seed, clusters, 2)
    return pa.table({**dict(zip("xyz", np.ascontiguousarray(places.T), strict=True)), "label": labels.astype(np.int32)})


def _draw(rows: int, seed: int, clusters: int, stream: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Points (rows x 3, three digits) and their clusters. Clusters depend on the seed alone, draws on `stream` too."""
    shape = np.random.default_rng([seed, clusters, 0])
    centres = shape.uniform(0.0, BOX, (clusters, 3))
    spreads = shape.uniform(3.0, 9.0, clusters)
    weights = shape.dirichlet(np.full(clusters, 4.0))
    rng = np.random.default_rng([seed, clusters, stream])
    labels = rng.choice(clusters, rows, p=weights)
    return np.round(centres[labels] + rng.normal(size=(rows, 3)) * spreads[labels, None], 3), labels
