"""The table of a live benchmark: kept row by row, so that a run that is broken off leaves what it has measured."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Table:
    """Rows of figures in a CSV file, which is replaced when the first row is there."""

    path: Path
    fields: Sequence[str]  #: the columns, in order
    rows: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row, figures with three decimals; write the file and print the row."""
        kept = {name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()}
        self.rows.append(kept)
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.fields)
            writer.writeheader()
            writer.writerows(self.rows)
        print(*(f"{name} {value}" for name, value in kept.items()), sep=", ", flush=True)
