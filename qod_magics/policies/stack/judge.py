"""The judge: Henge's loop around the disruptive actions of the other stages. Act, settle, keep or take back. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from qod_magics.core.actions import Action, Move, Scale
from qod_magics.core.optional import MAX_LATENCY
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.henge.guard import GuardState, Proposal, Verdict, guard
from qod_magics.policies.henge.jobs import maximum_utility
from qod_magics.policies.henge.parameters import Parameters
from qod_magics.policies.henge.utility import Utility, latency_utility
from qod_magics.policies.stack.pressure import latency
from qod_magics.policies.stack.stage import View
from qod_magics.policies.stack.under_way import in_use, subject

#: Ratio by which the load may differ from that before an action for the action to be judged.
SAME_LOAD = 0.2
#: A stack lets actions settle by itself.
PARAMETERS = Parameters(settle_s=0.0, skip_s=300.0)


@dataclass(frozen=True, slots=True)
class Trial:
    """What the judge knows between cycles."""

    guard: GuardState = field(default_factory=GuardState)
    load: float = 0.0  #: CPU needed at full accuracy before the action that is to be judged, % of one core


@dataclass(frozen=True, slots=True)
class Judge:
    """Moves and rescales are judged by the utility of all queries once they have settled. One that did harm is taken
    back; one that did not help is not proposed again for a while. Where the load has changed meanwhile, or an instance
    or a task manager has gone so that nothing can be taken back, nothing is judged. Task managers that join or leave
    are not judged: by themselves they change no query."""

    parameters: Parameters = PARAMETERS

    name = "judge"

    def weighed(self, trial: Trial, view: View, actions: Sequence[Action]) -> tuple[Verdict | None, Trial]:
        """The verdict on actions of a stage, or on those before. None: they are not for the judge. Call it only when
        the last action has settled; `actions` is empty where none is proposed."""
        judged = tuple(actions) if all(isinstance(action, Move | Scale) for action in actions) else ()
        load = sum(view.demand.needed)
        known = trial.guard
        if known.trial is not None and (
            abs(load - trial.load) > SAME_LOAD * trial.load
            or not _can_be_taken_back(known.trial.proposal.inverse, view.snapshot)
        ):
            known = replace(known, trial=None)
        proposal = None
        if judged:
            names = ", ".join(" ".join(subject(action)) for action in judged)
            proposal = Proposal(names, judged, _inverse(judged, view.snapshot))
        verdict, known = guard(known, view.now_s, utilities(view), proposal, self.parameters)
        trial = Trial(known, load if known.trial is not trial.guard.trial else trial.load)
        return (verdict if judged or verdict.actions else None), trial


def utilities(view: View) -> Mapping[str, Utility]:
    """By query: its maximum utility times its planned accuracy, and times target / latency where it is late (Henge,
    equations 1 and 2)."""
    found = {}
    for task in view.snapshot.tasks:
        if view.snapshot.downstream[task.id]:
            continue
        most = maximum_utility(task)
        current = most * view.plan.desired[task.id]
        target = MAX_LATENCY.of(task)
        found[task.id] = Utility(latency_utility(latency(task), target, current) if target else current, most)
    return found


def _can_be_taken_back(inverse: Sequence[Action], snapshot: Snapshot) -> bool:
    """Whether all that these actions name is there still."""
    instances, tasks = ({each.id for each in rows} for rows in (snapshot.instances, snapshot.tasks))
    managers = in_use(snapshot)
    return all(
        (action.instance in instances and action.to in managers)
        if isinstance(action, Move)
        else isinstance(action, Scale) and action.task in tasks
        for action in inverse
    )


def _inverse(actions: Sequence[Action], snapshot: Snapshot) -> tuple[Action, ...]:
    """What undoes moves and rescales."""
    homes = {instance.id: instance.task_manager for instance in snapshot.instances}
    undone: list[Action] = []
    for action in actions:
        why = f"{' '.join(subject(action))} did harm"
        if isinstance(action, Move):
            undone.append(Move(action.instance, homes[action.instance], why))
        elif isinstance(action, Scale):
            width = sum(instance.task == action.task for instance in snapshot.instances)
            undone.append(Scale(action.task, width, (), why))
    return tuple(undone)
