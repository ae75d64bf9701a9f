"""Units of the times of engines in virtual time: whole nanoseconds."""

US, MS, S = 1_000, 1_000_000, 1_000_000_000
