"""What holds for every job."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.policies.stela.job import Job, Options, congested, etp, etps
from qod_magics.policies.stela.scaling import (
    by_link_load,
    link_loads,
    re_deal,
    scale_in,
    scale_out,
    score,
    slots_per_machine,
)
from tests.policies.stela.jobs import POSITIVE, jobs, placements

OPTIONS = st.builds(
    Options,
    st.sampled_from([Fraction(1), Fraction(6, 5), 1.5]),
    st.sampled_from(["set", "paths"]),
    st.sampled_from(["measured", "capacity"]),
    st.booleans(),
)


def paths(job: Job, op: str) -> list[tuple[str, ...]]:
    """Every path from `op` to a sink, by plain enumeration."""
    children = job.graph.children[op]
    return [(op, *rest) for child in children for rest in paths(job, child)] if children else [(op,)]


@given(jobs(), OPTIONS)
def test_etp_is_what_all_open_paths_reach(job: Job, options: Options) -> None:
    found = congested(job, options)
    for op in job.graph.ops:
        ends = [path[-1] for path in paths(job, op) if not set(path[1:]) & set(found)]
        for mode, reached in (("set", set(ends)), ("paths", ends)):
            expected = sum(job.processed[sink] for sink in reached) / job.throughput if job.throughput else 0
            assert etp(job, op, found, mode) == expected


@given(jobs(), OPTIONS)
def test_etps_are_shares_and_those_of_the_sinks_sum_up_to_one(job: Job, options: Options) -> None:
    found = etps(job, congested(job, options))
    assert all(0 <= share <= 1 for share in found.values())
    if job.throughput:
        assert sum(found[sink] for sink in job.graph.sinks) == 1


@given(jobs(), st.integers(1, 3), st.integers(1, 4), OPTIONS)
def test_all_slots_are_filled_unless_every_candidate_is_at_its_maximum(
    job: Job, new: int, machines: int, options: Options
) -> None:
    names = [f"n{i}" for i in range(new)]
    slots = scale_out(job, names, machines, options)
    each = slots_per_machine(sum(job.instances.values()), machines)
    last = slots[-1].after if slots else job
    if len(slots) < each * new:
        candidates = {*congested(last, options), *job.graph.sources}
        assert not any(last.has_room(op) for op in candidates)
    assert len(slots) <= each * new
    assert all(slot.machine == names[slot.number % new] for slot in slots)
    added = Counter(slot.target for slot in slots)
    for op, k in job.instances.items():
        assert last.instances[op] == k + added[op]
        assert op not in job.most or last.instances[op] <= job.most[op]


@given(jobs(), OPTIONS)
def test_each_slot_goes_to_a_congested_operator_with_the_highest_etp(job: Job, options: Options) -> None:
    for slot in scale_out(job, ["n"], 1, options):
        found = congested(slot.before, options)
        open_ = [op for op in found if slot.before.has_room(op)]
        if open_:
            assert slot.by == "etp"
            most = max(etp(slot.before, op, found, options.mode) for op in open_)
            assert slot.target == next(op for op in open_ if etp(slot.before, op, found, options.mode) == most)
        else:
            assert slot.by == "source"
            assert slot.target in job.graph.sources


@given(jobs(rates=POSITIVE, bounded=False), st.integers(1, 3))
def test_without_a_limit_of_congestion_every_slot_goes_to_sources_in_turn(job: Job, machines: int) -> None:
    slots = scale_out(job, ["n"], machines, Options(10**12))
    sources = job.graph.sources
    assert [slot.target for slot in slots] == [sources[i % len(sources)] for i in range(len(slots))]


@given(st.data(), jobs(), st.integers(1, 6))
def test_scale_in_keeps_the_instances(data: st.DataObject, job: Job, remove: int) -> None:
    placement = data.draw(placements(job.graph.ops))
    value = etps(job, congested(job))
    result = scale_in(placement, value, remove)
    assert len(result.removals) == min(remove, len(placement) - 1)
    assert result.placement.keys() == placement.keys() - {removal.machine for removal in result.removals}
    before = Counter(hosted for there in placement.values() for hosted in there)
    assert Counter(hosted for there in result.placement.values() for hosted in there) == before
    for removal in result.removals:
        assert removal.scores[removal.machine] == min(removal.scores.values())
        assert all(shift.target in removal.scores and shift.target != removal.machine for shift in removal.shifts)
    if result.removals:
        assert result.removals[0].scores == {machine: score(there, value) for machine, there in placement.items()}
    moved = {shift.instance: shift.target for shift in result.shifts}
    home = {instance: machine for machine, there in result.placement.items() for instance, _ in there}
    assert moved == {instance: home[instance] for instance in moved}
    assert all(instance in home for instance in moved)


@given(st.data(), jobs())
def test_named_machines_leave_and_nothing_goes_to_them(data: st.DataObject, job: Job) -> None:
    placement = data.draw(placements(job.graph.ops))
    among = data.draw(st.sets(st.sampled_from(sorted(placement))))
    result = scale_in(placement, etps(job, congested(job)), len(among), among)
    gone = {removal.machine for removal in result.removals}
    if among != placement.keys():
        assert gone == among
        assert not {shift.target for removal in result.removals for shift in removal.shifts} & among
        assert all(shift.source in among for shift in result.shifts)
    else:
        assert len(gone) == len(placement) - 1


@given(st.data(), jobs())
def test_a_re_deal_is_even(data: st.DataObject, job: Job) -> None:
    placement = data.draw(placements(job.graph.ops))
    instances = [hosted for there in placement.values() for hosted in there]
    dealt = re_deal(instances, job.graph.ops, list(placement))
    assert dealt.keys() == {instance for instance, _ in instances}
    count = Counter(dealt.values())
    assert max(count.values()) - min(count[machine] for machine in placement) <= 1


@given(st.data(), jobs(), st.integers(0, 30))
def test_link_load_picks_the_given_number_of_instances_once_each(data: st.DataObject, job: Job, count: int) -> None:
    instances = [hosted for there in data.draw(placements(job.graph.ops)).values() for hosted in there]
    load = link_loads(job)
    for order in ("least", "most"):
        picked = by_link_load(instances, job.graph, load, count, order)
        assert len(picked) == len(set(picked)) == min(count, len(instances))
        if picked:
            extreme = min if order == "least" else max
            assert load[dict(instances)[picked[0]]] == extreme(load[op] for _, op in instances)
