"""Where instances go when a job is scaled: Stela's choice, and those that it was compared with. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction

from qod_magics.core.actions import Action, Move, ReleaseNode, Scale
from qod_magics.policies.stela.baselines import Order, by_link_load, link_loads, re_deal
from qod_magics.policies.stela.congestion import congested
from qod_magics.policies.stela.elastic import Deployment
from qod_magics.policies.stela.etp import etps
from qod_magics.policies.stela.job import Rate
from qod_magics.policies.stela.options import DEFAULT, Options
from qod_magics.policies.stela.scale_in import Hosted, ScaleIn, scale_in
from qod_magics.policies.stela.scale_out import Slot, scale_out, slots_per_machine


class ByETP:
    """Stela: new instances for the congested operators with the highest ETP, and the machines with the least go."""

    def __init__(self, options: Options = DEFAULT) -> None:
        self.options = options

    def scale_out(self, deployment: Deployment, new: tuple[str, ...]) -> tuple[Action, ...]:
        """See `elastic.Strategy`; one `Scale` for each operator that gains, in the order of its first instance."""
        slots = scale_out(deployment.job, new, len(deployment.placement) - len(new), self.options)
        return scales(slots)

    def scale_in(self, deployment: Deployment, remove: int, among: Collection[str] | None) -> tuple[Action, ...]:
        """See `elastic.Strategy`."""
        job = deployment.job
        value = etps(job, frozenset(congested(job, self.options)), self.options.mode)
        return _leaving(
            scale_in(deployment.placement, value, remove, among), lambda total: f"ETPSum {float(total):.2f}"
        )


class ReDeal:
    """Storm's default: all instances are dealt out anew. Its machines to remove are picked at random.

    Here that pick is arbitrary but repeatable, by a hash of the names, since decisions have no chance. Storm restarts
    every instance; a plan has moves for those whose task manager changes.
    """

    def scale_out(self, deployment: Deployment, new: tuple[str, ...]) -> tuple[Action, ...]:
        """See `elastic.Strategy`."""
        return tuple(self._moves(deployment, tuple(deployment.placement)))

    def scale_in(self, deployment: Deployment, remove: int, among: Collection[str] | None) -> tuple[Action, ...]:
        """See `elastic.Strategy`."""
        names = [name for name in deployment.placement if among is None or name in among]
        count = min(remove, len(names), len(deployment.placement) - 1)
        gone = sorted(names, key=_hash)[:count]
        rest = tuple(name for name in deployment.placement if name not in gone and (among is None or name not in among))
        rest = rest or tuple(name for name in deployment.placement if name not in gone)
        why = "it is to leave" if among is not None else "picked regardless of load"
        return (*self._moves(deployment, rest), *(ReleaseNode(name, why) for name in gone))

    @staticmethod
    def _moves(deployment: Deployment, machines: Sequence[str]) -> Iterator[Move]:
        home = _homes(deployment.placement)
        dealt = re_deal(deployment.instances, deployment.job.graph.ops, machines)
        for instance, target in dealt.items():
            if home[instance] != target:
                yield Move(instance, target, f"all instances are dealt out to {len(machines)} task managers")


class ByLinkLoad:
    """Migration by link load, as in work before Stela: as many instances as Stela would add move to the new machines.

    That work has no scale-in: here machines go as with Stela, with link loads in place of ETPs.
    """

    def __init__(self, order: Order = "least") -> None:
        self.order = order

    def scale_out(self, deployment: Deployment, new: tuple[str, ...]) -> tuple[Action, ...]:
        """See `elastic.Strategy`."""
        job, before = deployment.job, len(deployment.placement) - len(new)
        if not before:
            return ()
        count = slots_per_machine(sum(map(job.parallelism, job.graph.ops)), before) * len(new)
        load = link_loads(job)
        op_of = dict(deployment.instances)
        picked = by_link_load(deployment.instances, job.graph, load, count, self.order)
        return tuple(
            Move(
                instance,
                new[i % len(new)],
                f"{round(load[op_of[instance]])} rows/s on its links, {self.order} first",
            )
            for i, instance in enumerate(picked)
        )

    def scale_in(self, deployment: Deployment, remove: int, among: Collection[str] | None) -> tuple[Action, ...]:
        """See `elastic.Strategy`."""
        load = link_loads(deployment.job)
        if self.order == "most":
            load = {op: -rate for op, rate in load.items()}
        return _leaving(
            scale_in(deployment.placement, load, remove, among),
            lambda total: f"{round(abs(Fraction(total)))} rows/s on links",
        )


def scales(slots: Sequence[Slot]) -> tuple[Scale, ...]:
    """One action for each operator, with the machines of its new instances and the reason for the first of them."""
    firsts: dict[str, Slot] = {}
    to: dict[str, list[str]] = {}
    for slot in slots:
        firsts.setdefault(slot.target, slot)
        to.setdefault(slot.target, []).append(slot.machine)
    return tuple(
        Scale(op, first.before.parallelism(op) + len(to[op]), tuple(to[op]), _reason(first))
        for op, first in firsts.items()
    )


def _reason(slot: Slot) -> str:
    if slot.by == "source":
        return "no congested task may have another instance: the sources take turns"
    job, op = slot.before, slot.target
    measured = "" if slot.number == 0 else f", as projected for instance {slot.number + 1} of the plan"
    return (
        f"ETP {float(slot.etp):.0%} of {round(job.throughput)} rows/s; it is congested: input "
        f"{round(job.input(op))} rows/s, {round(job.processed[op])} of them read{measured}"
    )


def _leaving(result: ScaleIn, words: Callable[[Rate], str]) -> tuple[Action, ...]:
    """The moves, then the releases; `words`: how a machine's score is worded."""
    moves = [Move(shift.instance, shift.target, f"{shift.source} is to leave") for shift in result.shifts]
    releases = [
        ReleaseNode(gone.machine, f"{words(gone.scores[gone.machine])} among {len(gone.scores)} task managers")
        for gone in result.removals
    ]
    return (*moves, *releases)


def _homes(placement: Mapping[str, Sequence[Hosted]]) -> Mapping[str, str]:
    return {instance: machine for machine, hosted in placement.items() for instance, _ in hosted}


def _hash(name: str) -> int:
    """FNV-1a, 64 bits: the same in every process."""
    found = 0xCBF29CE484222325
    for byte in name.encode("utf-8", "surrogatepass"):
        found = (found ^ byte) * 0x100000001B3 % 2**64
    return found
