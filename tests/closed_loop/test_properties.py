"""What holds of the controller around any cluster, on simulated ones: with the policy of the paper, and with the best.

Each property says for which simulations it is claimed. What the policy can't do beyond them is in `test_findings.py`
and told in `tests/scenarios/README.md`: minimums are at least 0.1 (`nothing`), fit where the instances ended up
(`cascade`) with room to spare, after warm-ups that are not slow (`alone`) and that end (`stalled`);
faults are given time to be forgotten (`apart`). Of the paper's policy's simulations two things more are asked: where
instances are to rest, that there is room to spare wherever they were that the minimums fit (`exodus`); where accuracy
is to recover, no joins of joins (`nested`, `halfway`), and after faults no slow warm-ups either (`alone`).
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from qod_magics.simulator import Simulation
from qod_magics.testing import invariants
from qod_magics.testing.runs import watch
from qod_magics.testing.scenarios import PERIOD_S, dags, faulty, few, simulations, twins
from tests.closed_loop.examples import AUTO, BEST, EXAMPLES, EXAMPLES_OF_BEST, LITERAL, for_all

SETTLED = 8  #: cycles at the end of a run
QUICK = 1.3  #: cost of a row just after a start; `alone` shows what more does
CONSTANT = ((0.0, 1.0),)
ROUGH = [(0.0, 0.3), (20.0, 1.0), (40.0, 0.5), (40.0, 0.9), (60.0, 0.0), (70.0, 0.0), (75.0, 0.8)]


@EXAMPLES
def test_rows_and_cpu_are_conserved(examples, policy):
    def check(simulation: Simulation) -> list[str]:
        return invariants.books(watch(simulation))

    for_all(
        simulations(ROUGH, 100.0, few(0.3, 3.0), late=(20.0, 45.0), fitting=False), examples, check, "books", policy
    )


@EXAMPLES
def test_every_query_has_its_minimum_and_instances_rest_where_the_minimums_fit(examples, policy):
    def check(simulation: Simulation) -> list[str]:
        run = watch(simulation)
        assume(invariants.minimums_fit(run) and not invariants.stalled(run))
        assume(policy != LITERAL or not invariants.tight(run))
        return [
            *invariants.below_minimum(run, SETTLED),
            *invariants.moving(run, SETTLED),
            *invariants.back_and_forth(run),
        ]

    for_all(
        simulations(CONSTANT, 120.0, few(0.3, 3.0), late=(20.0,), slowdown=QUICK), examples, check, "minimums", policy
    )


@EXAMPLES
def test_a_plan_settles_under_constant_load_where_cpu_is_proportional_to_accuracy(examples, policy):
    """On one task manager, with two reports a period and without joins; `climb`, `interleaved`, `apart`, `tied` and
    `joined` show what else happens."""

    def check(simulation: Simulation) -> list[str]:
        run = watch(simulation)
        assume(invariants.minimums_fit(run) and not invariants.stalled(run))
        return invariants.unsettled(run, SETTLED)

    proportional = simulations(
        CONSTANT,
        130.0,
        few(0.3, 3.0),
        tasks=dags(proportional=True, joins=False),
        machines=st.just(1),
        slowdown=QUICK,
        report_s=PERIOD_S / 2,
    )
    for_all(proportional, examples, check, "settled", policy)


@EXAMPLES_OF_BEST
def test_a_plan_that_knows_the_costs_settles_under_any_constant_load(examples):
    """With fixed costs, with joins, on several task managers and with one report a period."""

    def check(simulation: Simulation) -> list[str]:
        run = watch(simulation)
        assume(invariants.minimums_fit(run) and not invariants.stalled(run))
        return invariants.unsettled(run, SETTLED)

    any_load = simulations(CONSTANT, 130.0, few(0.3, 3.0), late=(20.0,), slowdown=QUICK)
    for_all(any_load, examples, check, "settled-best", BEST)


@EXAMPLES_OF_BEST
def test_no_instance_comes_back_within_a_minute_under_constant_load(examples):
    """Whether or not the minimums fit, and however much dearer rows are just after a move."""

    def check(simulation: Simulation) -> list[str]:
        return invariants.returned(watch(simulation), 60.0)

    any_load = simulations(CONSTANT, 130.0, few(0.3, 3.0), machines=st.integers(2, 3), late=(20.0, 45.0), fitting=False)
    for_all(any_load, examples, check, "returned", BEST)


@EXAMPLES
def test_a_higher_priority_is_served_no_worse(examples, policy):
    def check(simulation: Simulation) -> list[str]:
        run = watch(simulation)
        assume(invariants.minimums_fit(run) and any(invariants.comparable(run)) and not invariants.stalled(run))
        return invariants.inverted(run, SETTLED)

    for_all(
        simulations(
            CONSTANT, 100.0, few(0.8, 3.0), tasks=twins(), machines=st.sampled_from((1, 1, 1, 2)), slowdown=QUICK
        ),
        examples,
        check,
        "priorities",
        policy,
    )


@EXAMPLES
def test_accuracy_is_full_again_after_an_overload(examples, policy):
    def check(simulation: Simulation) -> list[str]:
        assume(policy != LITERAL or not invariants.nested(simulation))
        run = watch(simulation)
        assume(invariants.all_fits(run) and invariants.minimums_fit(run, at_s=60.0) and not invariants.stalled(run))
        return invariants.still_shedding(run, SETTLED)

    curve = [(0.0, 0.2), (30.0, 0.2), (30.0, 1.0), (70.0, 1.0), (70.0, 0.2)]
    for_all(simulations(curve, 150.0, few(0.8, 3.0), slowdown=QUICK), examples, check, "recovery", policy)


@EXAMPLES
def test_lag_is_bounded_with_the_controller_and_grows_without(examples, policy):
    def check(simulation: Simulation) -> list[str]:
        assume(invariants.overloaded(simulation))
        run = watch(simulation)
        assume(invariants.minimums_fit(run) and not invariants.stalled(run))
        free = watch(replace(simulation, controlled=False))
        return [*invariants.late(run, SETTLED), *invariants.not_growing(free, SETTLED)]

    for_all(simulations(CONSTANT, 110.0, few(1.3, 3.0), slowdown=QUICK), examples, check, "lag", policy)


@EXAMPLES
def test_faults_are_survived_and_accuracy_recovers(examples, policy):
    """With two reports a period: `apart` shows how long it can take with one."""

    def check(simulation: Simulation) -> list[str]:
        run = watch(simulation)
        wrong = [*invariants.books(run), *invariants.unexplained(run)]
        assert not wrong, wrong
        if invariants.stalled(run) or (policy == LITERAL and invariants.nested(simulation)):
            return []
        if invariants.all_fits(run):
            return invariants.still_shedding(run, SETTLED)
        return invariants.below_minimum(run, SETTLED) if invariants.minimums_fit(run) else []

    slowdown = QUICK if policy == LITERAL else 2.0
    twice_a_period = simulations(CONSTANT, 240.0, st.just(0.5), report_s=PERIOD_S / 2, slowdown=slowdown)
    for_all(faulty(twice_a_period), examples, check, "faults", policy)


@EXAMPLES_OF_BEST
def test_auto_serves_no_query_worse_than_stream_economics_alone(examples):
    """The highest priority, and each query as far as its minimum: whatever else the stages move and start."""

    def check(simulation: Simulation) -> list[str]:
        run, alone = watch(simulation), watch(replace(simulation, policy=BEST))
        assume(not invariants.stalled(run) and not invariants.stalled(alone))
        return invariants.worse(run, alone, SETTLED)

    any_load = simulations(CONSTANT, 130.0, few(0.3, 3.0), late=(20.0, 45.0), slowdown=QUICK, fitting=False)
    for_all(any_load, examples, check, "auto", AUTO)
