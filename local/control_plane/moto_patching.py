"""Wrap single functions of moto with our own.

All behavior that moto lacks is added this way: if moto no longer has a name, the server fails at startup instead of
silently ignoring the change.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str, function: Callable[..., Any]) -> None:
    """Call ``function(original, *args)`` wherever moto calls ``owner.name(*args)``.

    Works for functions of modules, methods, class and static methods, and the getters of properties.
    """
    attribute = inspect.getattr_static(owner, name)
    if isinstance(attribute, property):
        setattr(owner, name, property(functools.partial(function, attribute.fget)))
    elif isinstance(attribute, classmethod | staticmethod):
        setattr(owner, name, staticmethod(functools.partial(function, getattr(owner, name))))
    else:
        setattr(owner, name, _function_calling(function, attribute))


def add(owner: Any, name: str, function: Callable[..., Any]) -> None:
    """Add a function to ``owner``, which must not already have one of that name."""
    if hasattr(owner, name):
        raise AttributeError(f"moto has a {owner.__name__}.{name} of its own")
    setattr(owner, name, function)


def _function_calling(function: Callable[..., Any], original: Any) -> Callable[..., Any]:
    """Return a plain function: unlike a partial, it becomes a method."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(original, *args, **kwargs)

    return call
