"""Nephele Streaming: latency constraints met by smaller output buffers and by chaining tasks.

Source: Lohrmann, Warneke, Kao, "Nephele Streaming: Stream Processing under QoS Constraints at Scale" (Cluster
Computing). Managers on the workers measure parts of the job graph; while the mean latency of a sequence is above its
limit they resize the output buffers along it, and chain its tasks into one thread once buffers can give no more.

A pass is `manager.QosManager.check`: it finds violated sequences and takes countermeasures. `latency` says which
workers run managers, and what they measure. Where the source contradicts itself or leaves a choice, the modules name
the reading:

- N5, N9: an anchor is the first along the path of those that are equally good
- N6: the expansion of a subgraph goes forwards and backwards and never turns round
- N7: a manager answers for the sequences through its own tasks of the anchor, also where graphs of paths are merged
- N8: the sender of a leading edge and the receiver of a trailing one are on the path
- N10: the exponent of r is in ms, "about 0" is up to 1 ms, and omega is the initial size
- N11: an undefined task latency counts as 0 in the sizing of buffers, and an item without a latency in no mean
- N12: a sequence may begin or end with a task, but not with a source's or sink's
- N13: inner tasks of a chain have one incoming and one outgoing channel
- N14: a channel is resized once a pass, however many violated sequences share it
- N15: the age of a sample counts from its arrival
- N16: an update holds for the epoch that it was decided on
- N17: buffers first, chains when these can give no more (`Parameters.chaining`)
- N18: nothing undoes a chain
- N21: the estimate for a sequence is the sum of its elements' means, not the mean over items of Eq. 1
- N25: all sequences through a changed channel wait

That a constraint cannot be met is reported by each manager for its part, until that part is met again. Recovery from
logged buffers bypasses a chain: `Parameters.never_chain` names the job vertices that stay apart.
"""

from __future__ import annotations

from qod_magics.policies.nephele.manager import (
    Nephele,
    Parameters,
    QosManager,
    Unmanaged,
    fixed_buffers,
    flush,
    nephele,
)

__all__ = ["Nephele", "Parameters", "QosManager", "Unmanaged", "fixed_buffers", "flush", "nephele"]
