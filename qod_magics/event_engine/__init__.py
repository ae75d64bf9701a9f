"""Discrete-event engines in virtual time, beside the fluid simulator, which knows rates of rows and no single message.

`messages` schedules messages: a dispatcher (`core.dispatch`) decides which runs next, and where. `buffers` has channels
with output buffers under QoS managers (`core.channel_qos`), `segments` a cluster that replicates segments under queries
(`core.segments`); `engines` lists the three. `simpy` keeps the queue of events; times are whole nanoseconds, and the
same seed gives the same run.
"""
