"""Signals that EchoQ sends, as Django's own: connect a receiver in the `ready` of an app."""

from django.dispatch import Signal

worker_child_started = Signal()
"""Sent in each process of a worker before it works, by `send_robust`: those that run jobs, and the one that beats.

`child` is its name in logs and in Redis, `number` its place in the worker (from 0; the one that beats has the last),
`preload` whether it was forked from a supervisor that had loaded the project. Here is the place to start what does not
survive a fork: threads, connections, an error reporter.
"""
