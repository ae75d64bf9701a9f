"""A policy made of stages, each with levers of its own; Stream Economics decides last and is the safety net. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

from qod_magics.core.fusing import neighbours
from qod_magics.core.plan import Action, AddNode, Fuse, Lend, Move, Pair, Plan, Scale
from qod_magics.core.policy import Reasons, SliceRules
from qod_magics.core.runtime import Measured, Unplaced
from qod_magics.core.snapshot import Instance, Snapshot, Task, TaskManager
from qod_magics.errors import UsageProblem, listed, nearest
from qod_magics.policies.dirigo.live import DirigoLive, Lent, Worker, lent_in, why_lent, workers_of
from qod_magics.policies.henge.utility import Reverted, Verdict, Waits
from qod_magics.policies.stack.stage import (
    BACK_OFF_S,
    LEVER_OF,
    Demand,
    Judge,
    Lever,
    Pressure,
    Stage,
    Trial,
    UnderWay,
    View,
    in_use,
    pressures,
    subject,
)
from qod_magics.policies.stream_economics.policy import LearningStreamEconomics

# --- The lending stage ------------------------------------------------------------------------------------------------
# Rows of a hot key go to an instance that has time before any are shed for it.
#
# Dirigo decides (`policies.dirigo.live`), with one rule of its own here: it looks at the rows that would come without
# shedding, as far as all instances together could count them, and at the backlog that they would be. By what comes and
# waits it would lend nothing while shedding keeps the backlog of the hot key short, and all keys would stay shed for
# the sake of one.


#: The part of its core from which on an instance is one that shedding keeps within what it counts. Below, its rows are
#: shed for the sake of another task manager, and come no sooner where some are lent.
BUSY = 0.7


@dataclass(frozen=True, slots=True)
class Lending:
    """Lends rows of queries that were declared so. It moves and restarts nothing, so it decides in every cycle."""

    decides: DirigoLive = field(default_factory=DirigoLive)

    name = "lend"
    owns = frozenset({Lever.LENDING})

    def lends(self, snapshot: Snapshot, lent: Lent, accuracy: Mapping[str, float]) -> tuple[Lend, ...]:
        """Return what instances lend from now on.

        Args:
            snapshot: a valid one.
            lent: what they lent while it was measured.
            accuracy: the accuracies that were planned meanwhile, by task.

        """
        return tuple(
            each
            for task in snapshot.tasks
            if task.lends
            for each in self._of_task(snapshot, task, lent, accuracy.get(task.id, 1.0))
        )

    def _of_task(self, snapshot: Snapshot, task: Task, lent: Lent, accuracy: float) -> list[Lend]:
        target_s = self.decides.target_s(task)
        measured = workers_of(snapshot, task, lent)
        full = unshed(measured, accuracy)
        lends = self.decides.of_task(task, tuple(behind(each, target_s) for each in full))
        why = {each.id: why_lent(each, target_s, more.own_rate) for each, more in zip(measured, full, strict=True)}
        return [Lend(each.task, each.instance, each.to, each.share, why[each.instance]) for each in lends]


def unshed(workers: Sequence[Worker], accuracy: float) -> tuple[Worker, ...]:
    """Return instances with the rows of their keys that would come at accuracy 1, or at the highest one at which all
    instances together can count them; as they are where none of them is busy. `accuracy`: the one at which they were
    measured."""
    busy = [each.own_rate * each.row_s for each in workers]
    if max(busy, default=0.0) < BUSY or not accuracy:
        return tuple(workers)
    factor = min(1.0 / accuracy, len(workers) / sum(busy))
    return tuple(replace(each, own_rate=each.own_rate * factor) for each in workers)


def behind(worker: Worker, target_s: float) -> Worker:
    """Return an instance with the least backlog that it would come to: if more rows come than it counts, further ones
    are late at last, whatever the target; what waits now only says how soon."""
    if worker.own_rate * worker.row_s <= 1.0:
        return worker
    return replace(worker, waiting=max(worker.waiting, ceil(target_s / worker.row_s)))


#: Name of the stage that sheds, and of the one that judges.
SHED, JUDGE = "shed", Judge.name
#: Fraction of the CPU that one task manager fewer must leave free before any is emptied.
HEADROOM = 0.2
#: Fraction of the instances that may warm up while a disruptive action begins: in a large cluster, some always do.
_WARMING = 0.02
#: Seconds between two snapshots without a time: the default period.
PERIOD_S = 5.0


@dataclass(frozen=True, slots=True)
class StackState:
    """The memory of a stack between cycles."""

    now_s: float = -PERIOD_S
    shedding: Any = None  #: of Stream Economics
    pressures: Mapping[str, Pressure] = field(default_factory=dict)
    eased_since_s: float | None = None  #: None: a query is under pressure, or nothing is known yet
    roomy_since_s: float | None = None  #: None: one task manager fewer would not have the CPU
    together: Mapping[Pair, float] = field(default_factory=dict)  #: neighbours that could be one query, since when
    under_way: UnderWay | None = None
    settled_at_s: float = 0.0  #: when the next disruptive action may begin
    refused: Mapping[tuple[str, str], float] = field(default_factory=dict)  #: failed actions, and until when
    trial: Trial = field(default_factory=Trial)  #: of the judge
    lent: Lent = field(default_factory=dict)  #: by the last plan
    desired: Mapping[str, float] = field(default_factory=dict)  #: accuracies of the last plan, by task


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What is carried out in a cycle."""

    stage: str
    actions: tuple[Action, ...]
    notes: dict[str, str]  #: of stages that do nothing: why
    trial: Trial


class Stack:
    """`shedding` on the snapshot as it is, and at most one disruptive action of the `stages` at a time.

    Minimum accuracies and priorities are those of `shedding`: its accuracies are never changed. Its moves, for minimums
    that do not fit, precede what the stages propose, and need not wait for warm-ups. Stages propose in their order; the
    first proposal is carried out, with the task managers that later stages start beside it, and no other until its
    effect is in the snapshot, at most 2 % of the instances warm up, and `settle_s` have passed. Without effect within
    `stage.TIMEOUT_S`, an action is not tried again for `BACK_OFF_S`. Where no task manager can be started, none is
    emptied and released: none could be started when the load rises. Rows are lent in every cycle, as that disturbs
    nothing.

    Args:
        name: what `--policy` selects.
        shedding: the policy that sheds, and moves where minimums do not fit.
        staying: the same without moves: it decides while another action is under way.
        stages: the first has precedence.
        judge: judges moves and rescales once they have settled, and takes back what did harm; None: nobody does.
        lending: lends rows of hot keys; None: nobody does.
        slices: how copies of slices of results are kept; None: there are none.
        settle_s: seconds after an action before the next.
        paused: names of stages that propose nothing.

    Raises ValueError where two stages own one lever, or one owns shedding.

    """

    def __init__(
        self,
        name: str,
        *,
        shedding: LearningStreamEconomics,
        staying: LearningStreamEconomics,
        stages: Sequence[Stage],
        judge: Judge | None = None,
        lending: Lending | None = None,
        slices: SliceRules | None = None,
        settle_s: float = 15.0,
        paused: Iterable[str] = (),
    ) -> None:
        owners: dict[Lever, str] = {Lever.SHEDDING: SHED}
        owned = [(stage.name, lever) for stage in stages for lever in stage.owns]
        if lending is not None:
            owned += [(lending.name, lever) for lever in lending.owns]
        for owner, lever in owned:
            if lever in owners:
                raise ValueError(f"{owners[lever]} and {owner} both own {lever.value}: one stage owns a lever")
            owners[lever] = owner
        self.name = name
        self.shedding = shedding
        self.staying = staying
        self.stages = tuple(stages)
        self.judge = judge
        self.lending = lending
        self.slices = slices
        self.settle_s = settle_s
        self._paused = frozenset(paused)
        self.owners: Mapping[Lever, str] = owners

    def __repr__(self) -> str:
        return f"policy {self.name}"

    @property
    def paused(self) -> frozenset[str]:
        """Return names of the stages that propose nothing."""
        return self._paused

    @property
    def stage_names(self) -> tuple[str, ...]:
        """Return names of the stages that can be paused."""
        lends = () if self.lending is None else (self.lending.name,)
        judges = () if self.judge is None else (JUDGE,)
        return (*(stage.name for stage in self.stages), *lends, *judges)

    def pausing(self, stage: str, paused: bool = True) -> Stack:
        """Return this policy with a stage paused, or not; its state stays valid. UsageProblem without it."""
        if stage not in self.stage_names:
            hint = nearest(stage, self.stage_names)
            known = ", ".join(self.stage_names)
            raise UsageProblem(
                f"policy {self.name} has no stage {stage!r} that can be paused.{hint} It has {known}.",
                name=stage,
                rule="exists",
            )
        found = self.paused | {stage} if paused else self.paused - {stage}
        return Stack(
            self.name,
            shedding=self.shedding,
            staying=self.staying,
            stages=self.stages,
            judge=self.judge,
            lending=self.lending,
            slices=self.slices,
            settle_s=self.settle_s,
            paused=found,
        )

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, Any]:
        """See `core.policy.LearningPolicy`."""
        return self.shedding.learn(snapshot, measured, memory)

    def kept(self, memory: Any) -> Any:
        """See `core.policy.RememberingPolicy`."""
        return self.shedding.kept(memory)

    def recalled(self, kept: Any, memory: Any) -> Any:
        """See `core.policy.RememberingPolicy`."""
        return self.shedding.recalled(kept, memory)

    def place(
        self, unplaced: Sequence[Unplaced], managers: Sequence[TaskManager], running: Sequence[Instance]
    ) -> Mapping[str, str]:
        """See `core.policy.PlacingPolicy`."""
        return self.shedding.place(unplaced, managers, running)

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return _StackReasons(self.shedding.explain(snapshot, plan), plan)

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Return the plan of `shedding`, with at most one proposal of the stages."""
        known: StackState = state if isinstance(state, StackState) else StackState()
        now_s = known.now_s + PERIOD_S if snapshot.at_s is None else snapshot.at_s
        known = self._advanced(known, snapshot, now_s)
        busy = self._busy(known, snapshot, now_s)
        moving = (known.under_way is None or known.under_way.for_minimums) and self._owner(Move) not in self.paused
        plan, shedding = (self.shedding if moving else self.staying).decide(snapshot, known.shedding)
        view, known = self._viewed(snapshot, plan, now_s, replace(known, shedding=shedding))
        for_minimums = bool(plan.actions)
        if for_minimums:
            chosen = _Chosen(self._owner(Move), plan.actions, {}, known.trial)
        else:
            chosen = self._chosen(view, known, busy)
            plan = replace(plan, actions=chosen.actions)
        applied = not snapshot.paused
        if chosen.actions and applied:
            under_way = UnderWay(chosen.stage, chosen.actions, now_s, in_use(snapshot), for_minimums)
            known = replace(known, under_way=under_way)
        self._note(chosen)
        lends = self._lends(snapshot, plan, known)
        if notes := [_why(each) for each in lends] + self._unable(snapshot):
            chosen.notes[self._owner(Lend)] = listed(notes, "; ")
        if lends:
            plan = replace(plan, actions=(*plan.actions, *lends))
        if chosen.notes:
            plan = replace(plan, stages=chosen.notes)
        if not applied:
            return plan, known
        return plan, replace(known, trial=chosen.trial, lent=lent_in(lends), desired=plan.desired)

    def _lends(self, snapshot: Snapshot, plan: Plan, known: StackState) -> tuple[Lend, ...]:
        """Return what instances lend that the plan lets run on where they are."""
        if self.lending is None or self.lending.name in self.paused:
            return ()
        leaving = set(plan.leaving)
        scaled = {action.task for action in plan.actions if isinstance(action, Scale)}
        lends = self.lending.lends(snapshot, known.lent, known.desired)
        return tuple(e for e in lends if e.task not in scaled and leaving.isdisjoint((e.instance, e.to)))

    def _unable(self, snapshot: Snapshot) -> list[str]:
        """Return why tasks that were declared to lend can't."""
        if self.lending is None or self.lending.name in self.paused:
            return []
        why = "lends no rows: all that send it rows must run on task managers that `%qod up` starts"
        return [f"{task.id} {why}" for task in snapshot.tasks if task.lends == 0]

    def _viewed(self, snapshot: Snapshot, plan: Plan, now_s: float, known: StackState) -> tuple[View, StackState]:
        """Return what the stages see, and the memory of how long each of it has been so."""
        found = pressures(snapshot, plan, now_s, known.pressures)
        eased = None if found else (now_s if known.eased_since_s is None else known.eased_since_s)
        demand = Demand.of(snapshot)
        roomy = now_s if known.roomy_since_s is None else known.roomy_since_s
        roomy_since_s = roomy if snapshot.is_elastic and demand.is_roomy(HEADROOM) else None
        together = {pair: known.together.get(pair, now_s) for pair in neighbours(snapshot)}
        skipped = [name for name, until in known.trial.guard.skip.items() if until > now_s]
        refused = {*map(" ".join, known.refused), *skipped}
        view = View(snapshot, now_s, plan, demand, found, eased, roomy_since_s, together, refused=refused)
        return view, replace(
            known, pressures=found, eased_since_s=eased, roomy_since_s=roomy_since_s, together=together
        )

    def _note(self, chosen: _Chosen) -> None:
        """Note the reasons of the chosen actions under the stages that own them."""
        for owner in dict.fromkeys(map(self._owner, map(type, chosen.actions))):
            mine = [action for action in chosen.actions if self._owner(type(action)) == owner]
            why = listed(list(dict.fromkeys(map(_why, mine))), "; ")
            chosen.notes[chosen.stage if chosen.stage == JUDGE else owner] = why

    def _owner(self, action: type[Action]) -> str:
        return self.owners.get(LEVER_OF[action], SHED)

    def _advanced(self, known: StackState, snapshot: Snapshot, now_s: float) -> StackState:
        """Return the memory at this snapshot: an action that is done, or has failed, is under way no longer."""
        refused = {each: until for each, until in known.refused.items() if until > now_s}
        under_way, settled_at_s, trial = known.under_way, known.settled_at_s, known.trial
        together = known.together
        if under_way is not None:
            if under_way.is_done(snapshot):
                settled_at_s = now_s + (self.settle_s if under_way.disturbs else 0.0)
                under_way = None
            elif under_way.has_failed(snapshot, now_s):
                failed = under_way.not_done(snapshot)
                refused |= {subject(action): now_s + BACK_OFF_S for action in failed}
                together = {pair: since for pair, since in together.items() if Fuse(pair) not in failed}  # others first
                under_way, trial = None, Trial()
        return replace(
            known,
            now_s=now_s,
            together=together,
            under_way=under_way,
            settled_at_s=settled_at_s,
            refused=refused,
            trial=trial,
        )

    def _busy(self, known: StackState, snapshot: Snapshot, now_s: float) -> str:
        """Return why no disruptive action may begin; "" if one may."""
        if known.under_way is not None:
            names = listed([" ".join(subject(action)) for action in known.under_way.actions])
            return f"{names} is under way"
        warming = [instance.id for instance in snapshot.instances if instance.warming_up]
        if len(warming) > _WARMING * len(snapshot.instances):
            return f"{listed(warming)} warms up"
        left_s = known.settled_at_s - now_s
        return f"the last action settles for {left_s:.0f} s more" if left_s > 0 else ""

    def _chosen(self, view: View, known: StackState, busy: str) -> _Chosen:
        """Return the first proposal that may be carried out, with the task managers that later stages start beside it;
        or the last action taken back. With the notes of the stages."""
        notes: dict[str, str] = {}
        trial = known.trial
        first = ""
        found: tuple[Action, ...] = ()
        for stage in self.stages:
            if stage.name in self.paused:
                continue
            proposal = stage.propose(replace(view, proposed=found))
            actions = tuple(action for action in proposal.actions if subject(action) not in known.refused)
            self._check(stage, actions)
            if first:  # to start task managers disturbs nothing that runs, and takes longest
                actions = tuple(action for action in actions if isinstance(action, AddNode))
            if not actions:
                note = proposal.note or ("what it would do has failed a short while ago" if proposal.actions else "")
                if note and not first:
                    notes[stage.name] = note
                continue
            if busy:
                notes[stage.name] = f"waits: {busy}"
                return _Chosen("", (), notes, trial)
            if not first:
                verdict, trial = self._weighed(trial, view, actions)
                if isinstance(verdict, Reverted):
                    return _Chosen(JUDGE, verdict.actions, notes, trial)
                if isinstance(verdict, Waits):
                    notes[stage.name] = verdict.why
                    continue
            first, found = first or stage.name, (*found, *actions)
        if first:
            return _Chosen(first, found, notes, trial)
        if not busy:
            verdict, trial = self._weighed(trial, view, ())
            if isinstance(verdict, Reverted):
                return _Chosen(JUDGE, verdict.actions, notes, trial)
        return _Chosen("", (), notes, trial)

    def _weighed(self, trial: Trial, view: View, actions: tuple[Action, ...]) -> tuple[Verdict | None, Trial]:
        if self.judge is None or JUDGE in self.paused:
            return None, trial
        return self.judge.weighed(trial, view, actions)

    def _check(self, stage: Stage, actions: Sequence[Action]) -> None:
        for action in actions:
            if LEVER_OF[type(action)] not in stage.owns:
                raise ValueError(f"stage {stage.name} proposes {action}, whose lever it does not own")


def _why(action: Action) -> str:
    name = " ".join(subject(action))
    return f"{name}: {action.why}" if action.why else name


class _StackReasons:
    """See `core.policy.Reasons`."""

    def __init__(self, shedding: Reasons, plan: Plan) -> None:
        self._shedding = shedding
        self._notes = plan.stages

    def __repr__(self) -> str:
        return f"{self._shedding!r}, with {len(self._notes)} notes of stages"

    def shedding(self, tasks: Sequence[str]) -> Mapping[str, str]:
        """See `core.policy.Reasons`."""
        return self._shedding.shedding(tasks)

    def task(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`; each stage with something to say is named."""
        return [*self._shedding.task(id), *self._stages()]

    def supply(self, id: str) -> str:
        """See `core.policy.Reasons`."""
        return self._shedding.supply(id)

    def task_manager(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`."""
        return [*self._shedding.task_manager(id), *self._stages()]

    def starved(self, id: str) -> str:
        """See `core.policy.Reasons`."""
        return self._shedding.starved(id)

    def numbers(self, id: str) -> Mapping[str, float]:
        """See `core.policy.Reasons`."""
        return self._shedding.numbers(id)

    def _stages(self) -> list[str]:
        return [f"stage {name}: {note}" for name, note in self._notes.items()]
