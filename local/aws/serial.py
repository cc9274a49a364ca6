"""One request at a time, as moto's state is plain dictionaries without locks."""

from threading import RLock

LOCK = RLock()
"""Held by whoever reads or changes the state: a request, or the timer of a signal wait."""
