"""Engines of single items in virtual time, beside the fluid simulator. `simpy` keeps the queue of events."""
