"""A load that falls: it is noticed at once, what it left is read, and every row that comes later is kept."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.controller import Controller, ControllerThread, Cycle, InlineWorker, ManualClock
from qod_magics.controller.dials import SETTLED_WITHIN, Backlog, Fall, Limits, hastened, noticed, unsettled, waiting
from qod_magics.controller.reaction import FALLEN, KNOWN_S, RateCheck
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Measured, Observation
from qod_magics.core.snapshot import Instance, Snapshot, Task, TaskManager
from qod_magics.policies import policy
from qod_magics.simulator import SimulatedCluster, Simulation, simulate
from tests.closed_loop.examples import corners
from tests.controller.looping import until

PERIOD_S, CHECK_S, ABOVE = 5.0, 1.0, 1.4

Arrived = Callable[[float], float]  #: rows until a second


def decided(arrived: Arrived, until_s: int, window_s: float = 1.5) -> list[tuple[float, Mapping[str, float]]]:
    """(second, rates) of the early decisions for a source that is checked once a second and planned for with its mean
    over a period, at the end of each."""
    check, found, planned = RateCheck(), [], {"a": 0.0}
    for second in range(1, until_s):
        rate = (arrived(second) - arrived(second - window_s)) / window_s
        check = check.after(float(second), {"a": rate}, planned, ABOVE)
        rates = {"a": rate} if check.stepped or check.fallen else {}
        if rates:
            found.append((float(second), rates))
        if rates or second % PERIOD_S == 0:
            planned = rates or {"a": (arrived(second) - arrived(second - PERIOD_S)) / PERIOD_S}
            check = check.decided(rates)
    return found


def stepped(before: float, after: float, at_s: float) -> Arrived:
    return lambda second: before * min(second, at_s) + after * max(second - at_s, 0.0)


@given(st.floats(500, 1e6), st.floats(0.01, 0.24), st.floats(0, 5))
def test_a_strong_fall_is_found_within_three_seconds_and_with_the_rate_since(
    before: float, share: float, phase: float
) -> None:
    """Below a quarter: a second shows it, and the next two checks find it."""
    at_s = 40.0 + phase
    found = [(second, rates) for second, rates in decided(stepped(before, share * before, at_s), 80) if second > at_s]
    (second, rates), *others = found
    assert second <= at_s + 3.0
    assert rates["a"] == pytest.approx(share * before)
    assert others == []


@given(st.integers(1, 10), st.integers(0, 100), st.floats(0.05, 0.95), st.floats(1, 1e4), st.floats(0, 1e4))
def test_waves_are_no_falls(period: int, phase: int, part: float, low: float, high: float) -> None:
    """As long as a wave takes no longer than the time for which a source must be known."""

    def arrived(second: float) -> float:
        waves, rest = divmod(second + phase / 10, period)
        return (waves * part + min(rest / period, part)) * period * high + low * second

    early = [rates["a"] for second, rates in decided(arrived, 120) if second > KNOWN_S + PERIOD_S]
    mean = part * high + low
    assert all(rate >= FALLEN * mean for rate in early)


@given(st.integers(10, 10_000), st.floats(0, 0.999))
def test_a_source_that_writes_once_a_second_is_steady(rows: int, phase: float) -> None:
    def arrived(second: float) -> float:
        return rows * math.floor(second + phase)

    assert [second for second, _ in decided(arrived, 120) if second > KNOWN_S] == []


@given(st.lists(st.floats(0.8, 1.2), min_size=100, max_size=100), st.floats(100, 1e6))
def test_a_steady_source_is_decided_on_in_time_only(noise: list[float], rate: float) -> None:
    check = RateCheck()
    for second, factor in enumerate(noise):
        check = check.after(float(second), {"a": factor * rate}, {"a": rate}, ABOVE)
        assert not check.stepped
        assert not check.fallen


def test_a_source_from_which_nothing_comes_any_more_has_not_fallen() -> None:
    assert [second for second, _ in decided(stepped(1000.0, 0.0, 40.0), 80) if second > 42.0] == []


def test_a_fall_is_one_only_once_the_source_is_known() -> None:
    early = [second for second, _ in decided(stepped(1000.0, 100.0, 5.0), 30) if second > 5.0]
    assert early == []


# -- what it leaves ----------------------------------------------------------------------------------------------------

LIMITS = Limits(2.5, 5.0)
seconds = st.floats(0.1, 100)
rates = st.floats(1, 1e6)
falls = st.builds(Fall, st.just(0.0), rates, rates)
left = st.builds(Backlog, st.floats(0, 1e7), rates)


@given(falls, left, seconds, st.floats(0.1, 5))
def test_a_fall_only_hastens_a_drain(fall: Fall, backlog: Backlog, until_s: float, least_s: float) -> None:
    found = {"a": backlog, "b": backlog}
    hasty = hastened({"a": until_s, "b": until_s}, found, {"a": fall}, least_s)
    assert hasty["b"] == until_s
    assert min(least_s, until_s) <= hasty["a"] <= until_s


@given(falls, left, seconds)
def test_what_is_not_thinned_is_little_or_goes_by_itself(fall: Fall, backlog: Backlog, within_s: float) -> None:
    assert waiting({"b": backlog}, {"a": fall}, LIMITS, within_s) == {"b": backlog}
    if not waiting({"a": backlog}, {"a": fall}, LIMITS, within_s):
        assert backlog.rate is not None
        spare = fall.kept - backlog.rate
        assert backlog.rows <= max(LIMITS.trigger_s * backlog.rate, within_s * spare)


@pytest.mark.parametrize(
    ("accuracy", "keeps", "expected"), [(0.0, 1.0, ["a"]), (0.9, 0.8, []), (1.0, 1.0, []), (None, 1.0, [])]
)
def test_a_fall_is_unsettled_while_dropped_rows_show_and_none_is_dropped(
    accuracy: float | None, keeps: float, expected: list[str]
) -> None:
    plan = Plan({"a": keeps}, {(None, "a"): keeps})
    fall = {"a": Fall(0.0, 10.0, 1.0)}
    assert unsettled(fall, plan, Measured(accuracy={"a": accuracy})) == expected
    assert unsettled({}, plan, Measured(accuracy={"a": accuracy})) == []


def test_falls_are_forgotten() -> None:
    old, new = Fall(0.0, 10.0, 1.0), Fall(9.0, 20.0, 1.0)
    assert noticed({"a": old}, {"b": new}, 9.0, 10.0) == {"a": old, "b": new}
    assert noticed({"a": old, "b": new}, {}, 10.0, 10.0) == {"b": new}
    assert noticed({"a": old}, {"a": new}, 9.0, 10.0) == {"a": new}


# -- the loop ----------------------------------------------------------------------------------------------------------

FALL_S, FOUND_S = 80.0, 3.0
CARRIED = 20_000.0  #: rows/s of each that a core carries, about
TIMES, AFTERWARDS = 4.0, 0.6  #: load before and after, in multiples of that
#: `read_us` is CPU for each row that is dropped, too
QUERIES: dict[str, dict[str, Any]] = {
    "dear": {"read_us": 2, "work_us": 45, "mode": "real-time"},
    "batches": {"read_us": 2, "work_us": 45, "mode": "micro-batch", "trigger_s": 0},
    "reading": {"read_us": 6, "work_us": 39, "mode": "micro-batch", "trigger_s": 0},
}


def overloaded(query: str, phase: float) -> Simulation:
    """A load of which the core carries a fourth falls to 0.6 of what it carries."""
    begin, end = 50.0 + phase, FALL_S + phase
    steps = [(0, 0.5), (begin, 0.5), (begin, TIMES), (end, TIMES), (end, AFTERWARDS)]
    return Simulation.from_json(
        {
            "seed": 1,
            "duration_s": 120,
            "step_s": 0.1,
            "topics": [{"topic": "rows", "rate": [[second, CARRIED * load] for second, load in steps]}],
            "task_managers": [{"id": "tm1"}],
            "tasks": [{"id": "q", "topic": "rows", "priority": 1, "min_accuracy": 0.05, **QUERIES[query]}],
            "metrics": {"cpu_noise": 0.03, "report_s": 5.1},
        }
    )


def run(simulation: Simulation, name: str) -> list[tuple[float, int, int, int, Cycle]]:
    """(second, rows read, kept and waiting, cycle) after each cycle."""
    found = []

    def look(cluster: SimulatedCluster, cycle: Cycle) -> None:
        engine = cluster.engine
        found.append((engine.now, int(engine.read.sum()), int(engine.kept.sum()), int(engine.waiting.sum()), cycle))

    simulate(simulation, policy=policy(name), inspect=look)
    return found


def opened_s(looks: list[tuple[float, int, int, int, Cycle]], fall_s: float) -> float:
    """Seconds from the fall to the first cycle that keeps all rows from then on."""
    since = math.inf
    for second, _, _, _, cycle in looks:
        assert cycle.decision is not None
        if cycle.decision.dials.keep[None, "q"] < 1.0:
            since = math.inf
        elif second > fall_s:
            since = min(since, second)
    return since - fall_s


@pytest.mark.closed_loop
@corners(
    "query phase",
    *(("dear", 0.0), ("dear", 2.5), ("batches", 0.5), ("batches", 3.3), ("reading", 1.7), ("reading", 4.2)),
    others=itertools.product(QUERIES, (0.0, 0.5, 1.7, 2.5, 3.3, 4.2)),
)
def test_after_an_overload_every_row_is_kept_once_what_it_left_is_read(query: str, phase: float) -> None:
    """The fall is found within three seconds; what waits is read in the time in which it was collected."""
    looks = run(overloaded(query, phase), "stream-economics-reactive")
    fall_s = FALL_S + phase
    waits = max(waits for second, _, _, waits, _ in looks if fall_s - PERIOD_S <= second <= fall_s + PERIOD_S)
    took_s = opened_s(looks, fall_s)
    assert took_s <= FOUND_S + waits / (TIMES * CARRIED) + CHECK_S
    later = [look for look in looks if look[0] > fall_s + took_s + 1.0]
    assert later[-1][1] - later[0][1] == later[-1][2] - later[0][2]
    assert all(waits <= 2 * PERIOD_S * AFTERWARDS * CARRIED for _, _, _, waits, _ in later)
    last = later[-1][4]
    assert last.measured is not None
    assert last.measured.accuracy["q"] == 1.0


def test_it_is_sooner_than_by_means_over_a_period() -> None:
    simulation = overloaded("batches", 0.5)
    found = {
        name: opened_s(run(simulation, name), FALL_S + 0.5)
        for name in ("stream-economics-filled", "stream-economics-reactive")
    }
    assert found["stream-economics-reactive"] < 0.6 * found["stream-economics-filled"]


def test_a_fall_right_after_a_rise_is_decided_on_before_its_time_too() -> None:
    simulation = overloaded("dear", 0.0).to_json()
    loads = [(0, 0.5), (80.0, 0.5), (80.0, 4.0), (83.0, 4.0), (83.0, 0.2)]
    simulation["topics"][0]["rate"] = [[second, CARRIED * load] for second, load in loads]
    looks = run(Simulation.from_json(simulation), "stream-economics-reactive")
    early = [look[0] for look in looks if look[0] > 80 and any(e.kind == "reaction" for e in look[4].events)]
    assert len(early) == 2
    assert early[0] <= 80.0 + FOUND_S
    assert early[1] <= 83.0 + FOUND_S


@pytest.mark.parametrize("wave_s", [3, 8])
def test_a_load_in_waves_is_decided_on_as_if_none_fell(wave_s: int) -> None:
    """A source is as low in each wave as in the one before: no early decision is for less than half of its mean."""
    points: list[list[float]] = []
    for second in range(0, 120, wave_s):
        high, low, middle = 2.0 * CARRIED, 0.3 * CARRIED, second + wave_s / 2
        points += [[second, high], [middle, high], [middle, low], [second + wave_s, low]]
    simulation = overloaded("dear", 0.0).to_json()
    simulation["topics"][0]["rate"] = points
    looks = run(Simulation.from_json(simulation), "stream-economics-reactive")
    early = [e.detail["rates"]["q"] for *_, cycle in looks for e in cycle.events if e.kind == "reaction"]
    assert all(rate > FALLEN * 1.15 * CARRIED for rate in early)


class Left:
    """A query of which rows wait after a fall, for some seconds. They are read at one rate, whatever the dials. Rows
    dropped before show until `whole_s`, or else until none waits."""

    supports: frozenset[Any] = frozenset()

    def __init__(self, clock: ManualClock, fall_s: float, gone_s: float, whole_s: float | None = None) -> None:
        self.clock, self.fall_s, self.gone_s = clock, fall_s, gone_s
        self.whole_s = gone_s if whole_s is None else whole_s

    def input_rates(self, over_s: float) -> Mapping[str, float]:
        return {"q": self._rate(self.clock.monotonic() - over_s)}

    def observe(self) -> Observation:
        now = self.clock.monotonic()
        rate = sum(self._rate(now - PERIOD_S * part / 10) for part in range(10)) / 10
        waits = 30_000 if self.fall_s <= now < self.gone_s else 0
        snapshot = Snapshot(
            (TaskManager("tm1", 0.9, 80.0),),
            (Task("q", (), rate, 1, 0.1),),
            (),
            (Instance("q.1", "q", "tm1", 1000.0, 80.0, False, window=[now - PERIOD_S, now]),),
        )
        accuracy = {"q": 1.0 if now >= self.whole_s else 0.1}
        return Observation(snapshot, Measured(lag={"q": waits}, input_rate={"q": rate}, accuracy=accuracy))

    def apply(self, *_: Any) -> None:
        pass

    def _rate(self, second: float) -> float:
        return 10_000.0 if second < self.fall_s else 500.0


def looked(runtime: Left, clock: ManualClock, count: int = 30) -> tuple[list[float], list[float]]:
    """Seconds of the cycles, and what the source's shedder keeps after each."""
    begun = clock.wall()
    controller = Controller(runtime, policy("stream-economics-reactive"), clock=clock, worker=InlineWorker)
    cycles = until(ControllerThread(controller), count)
    at = [(cycle.at - begun).total_seconds() for cycle in cycles]
    return at, [cycle.decision.dials.keep[None, "q"] for cycle in cycles if cycle.decision is not None]


def test_while_what_a_fall_left_is_drained_a_cycle_a_second_looks_whether_it_is_gone_and_then_they_are_on_time() -> (
    None
):
    clock = ManualClock()
    at, keeps = looked(Left(clock, 41.2, 46.2), clock)
    early = next(second for second in at if second > 41.2)
    assert early <= 41.2 + 3.0
    first = at.index(early)
    thinned = [second for second, keep in zip(at, keeps, strict=True) if second >= early and keep < 1.0]
    assert thinned == pytest.approx([early + CHECK_S * n for n in range(len(thinned))])
    assert thinned[-1] < 46.2 <= at[first + len(thinned)] <= 46.2 + CHECK_S
    assert at[first + len(thinned) :][1] - early == pytest.approx(2 * PERIOD_S, abs=PERIOD_S)
    assert at[-1] - at[-2] == pytest.approx(PERIOD_S)


@pytest.mark.parametrize("whole_s", [49.7, 57.3])
def test_cycles_a_second_go_on_until_no_dropped_row_shows(whole_s: float) -> None:
    clock = ManualClock()
    at, keeps = looked(Left(clock, 41.2, 46.2, whole_s), clock)
    opened = next(s for s, keep in zip(at, keeps, strict=True) if s >= 46.2 and keep == 1.0)
    assert opened <= 46.2 + CHECK_S
    looks = [second for second in at if opened <= second <= whole_s + CHECK_S]
    assert max(after - before for before, after in itertools.pairwise(looks)) <= CHECK_S + 1e-6
    assert looks[-1] >= whole_s
    assert at[-1] - at[-2] == pytest.approx(PERIOD_S)


def test_they_do_not_go_on_for_ever() -> None:
    clock = ManualClock()
    at, _ = looked(Left(clock, 41.2, 46.2, whole_s=1000.0), clock, 40)
    early = next(second for second in at if second > 41.2)
    late = [second for second in at if second > early + SETTLED_WITHIN * 2 * PERIOD_S + PERIOD_S]
    assert [after - before for before, after in itertools.pairwise(late)] == pytest.approx([PERIOD_S] * (len(late) - 1))
    assert len(late) >= 3
