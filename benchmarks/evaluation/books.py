"""Checks of a live run that hold or not, whatever the machine: its books, its failures, and what it left behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from benchmarks.evaluation.cluster import Run
from qod_magics.controller.record import Records

#: Events that no run may have.
FAILURES = frozenset({"query-failed", "query-restarted", "task-manager-lost", "task-manager-failed", "action-refused"})
GONE_S = 15.0


@dataclass(frozen=True, slots=True)
class Check:
    """One of them."""

    name: str
    passed: bool
    detail: str = ""  #: why it did not pass


def checks(records: Records, sent: Mapping[str, int], left: Sequence[str], *, sheds: bool) -> list[dict[str, Any]]:
    """All checks of a run, in JSON form. Pure.

    Args:
        records: of the whole run.
        sent: rows that the broker acknowledged, by the task that reads them.
        left: what the session's end left behind.
        sheds: whether the policy sheds load.

    """
    found = [_balanced(records), _complete(records, sent), _whole(records, sheds), _failures(records)]
    return [asdict(each) for each in [*found, Check("nothing is left over", not left, "; ".join(left))]]


def ended(run: Run, processes: Iterable[int]) -> list[str]:
    """End the session; what it left behind, a line each. `processes`: the child processes from before the run."""
    left = [*run.session.down()]
    there = [each for each in psutil.Process().children(recursive=True) if each.pid not in set(processes)]
    _, alive = psutil.wait_procs(there, GONE_S)
    return [*left, *(f"process {each.pid}" for each in alive)]


def children() -> list[int]:
    """The child processes of this process."""
    return [each.pid for each in psutil.Process().children(recursive=True)]


def _balanced(records: Records) -> Check:
    wrong = [
        f"{name} in cycle {record.number}: {count}"
        for record in records
        for name, count in record.measured.counts.items()
        if count.arrived != count.processed + count.dropped + count.waiting + count.unreported or count.waiting < 0
    ]
    return Check("the books balance in every cycle", not wrong and bool(records), "; ".join(wrong[:1]))


def _complete(records: Records, sent: Mapping[str, int]) -> Check:
    counts = records[-1].measured.counts if records else {}
    arrived = {task: counts[task].arrived if task in counts else 0 for task in sent}
    return Check("every row sent is in the books", arrived == dict(sent), f"sent {dict(sent)}, in the books {arrived}")


def _whole(records: Records, sheds: bool) -> Check:
    counts = records[-1].measured.counts if records else {}
    gone = {
        name: (count.dropped, count.unreported)
        for name, count in counts.items()
        if count.unreported or (count.dropped and not sheds)
    }
    what = "no row is unreported" if sheds else "no row is shed or unreported"
    return Check(what, not gone, f"shed, unreported: {gone}" if gone else "")


def _failures(records: Records) -> Check:
    found = [f"{e.kind} {dict(e.detail)}" for record in records for e in record.events if e.kind in FAILURES]
    return Check("nothing failed or was refused", not found, "; ".join(found[:2]))
