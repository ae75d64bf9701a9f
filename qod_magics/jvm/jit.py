"""JIT compilation of the JVMs that are started here."""

from __future__ import annotations

from collections.abc import Mapping

#: Within half a minute under load, the code of both compilers is faster than C1's alone, on a single core, too; in the
#: long run a row takes a half to a third of the CPU.
DEFAULT_JIT = "full"
#: C2 compiles only what runs ten times as often as the JVM's defaults ask for. Code that runs for each row does within
#: seconds; code that plans and commits batches, most of Spark, would keep C2 busy with a quarter of a core for minutes,
#: at the expense of the tasks.
_HOT_ONLY = {
    "Tier4InvocationThreshold": 50_000,
    "Tier4MinInvocationThreshold": 6_000,
    "Tier4CompileThreshold": 150_000,
    "Tier4BackEdgeThreshold": 400_000,
}
JIT_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "full": tuple(f"-XX:{name}={value}" for name, value in _HOT_ONLY.items()),
    "jvm": (),  # the JVM's own defaults
    # C1's default code cache, 48 MB, is too small for Spark: the sweeper and recompilation would take a tenth of a core
    "c1": ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m"),
}
