"""Cameo: the message that can wait least runs next (Xu, chapter 5).

Jobs share the workers of a machine. Each message carries its latest start, derived from the target of its job, the end
of the window that it feeds, and profiled costs downstream; a worker takes the operator whose next message has the
earliest.

Modules: `contexts` has the parameters and equations, what travels with messages, and their priorities; `dispatcher`
queues and runs them, and has FIFO and Orleans' scheduler to compare with. Both are for virtual time; `live` has the
policies of these names on a cluster of micro-batches.

How the source is read where it says too little or contradicts itself, and the option for the other reading:

- E1: a message that completes a window is not put off; `Parameters.transform = "printed"` puts it off by a slide
- E4: a stream's map learns from observed pairs alone, at the source; it is shared by all that rank its messages
- E7: a message without a token is least urgent
- 2.9: within an operator, order by interval lets old messages without a token block later ones with one;
  `TokenRates.overtake`
- A3: an operator ranks by its head, even if a later message is more urgent
- A4: an acknowledgement follows execution
- A9: nothing prevents starvation: work without tokens may wait for ever
- A10: late rows rank by the progress of their channel, so with the next window
- A12: messages of one window share a deadline, although they need the sum of their costs
- A13: operators stay on the machines that the topology gives
- a map is fitted to 64 pairs, a profile is a running mean with weight 0.2; `history`, `weight`
- a result of several streams takes the map of the message that triggered it; `join_aware` takes the latest of all
- an acknowledgement that repeats the last one of its channel is left out: its sender knows all of it
- Orleans: an operator given back after its quantum goes into its worker's own bag, and so is taken again at once

"""

from __future__ import annotations

from qod_magics.policies.cameo.contexts import Parameters, TokenRates
from qod_magics.policies.cameo.dispatcher import ArrivalOrder, Cameo, fifo, orleans, with_deadlines, with_tokens

__all__ = [
    "ArrivalOrder",
    "Cameo",
    "Parameters",
    "TokenRates",
    "cameo",
    "earliest_deadline",
    "fifo",
    "orleans",
    "shortest_job",
    "topology_only",
    "with_deadlines",
    "with_tokens",
]


def cameo() -> Cameo:
    """Return the dispatcher `cameo`: least laxity first."""
    return with_deadlines()


def earliest_deadline() -> Cameo:
    """Return the dispatcher `cameo-edf`: earliest deadline first."""
    return with_deadlines(Parameters(order="edf"), "cameo-edf")


def shortest_job() -> Cameo:
    """Return the dispatcher `cameo-sjf`: shortest job first."""
    return with_deadlines(Parameters(order="sjf"), "cameo-sjf")


def topology_only() -> Cameo:
    """Return the dispatcher `cameo-topology-only`: Cameo that knows paths and costs, but no windows."""
    return with_deadlines(Parameters(windows=False), "cameo-topology-only")
