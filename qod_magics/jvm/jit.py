"""JIT compilation of the JVMs that are started here."""

from __future__ import annotations

from collections.abc import Mapping

#: Within half a minute under load, the code of both compilers is faster than C1's alone, on a single core, too; in the
#: long run a row takes a half to a third of the CPU.
DEFAULT_JIT = "full"
JIT_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "full": (),
    # C1's default code cache, 48 MB, is too small for Spark: the sweeper and recompilation would take a tenth of a core
    "c1": ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m"),
}
