"""Wraps one named piece of moto with a function of ours.

Each behaviour that moto lacks is added this way, so that a name that moto no longer has stops the
server at start instead of being silently without effect.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any


def around(owner: Any, name: str, function: Callable[..., Any]) -> None:
    """Call ``function(original, *arguments)`` wherever moto calls ``owner.name(*arguments)``.

    Works for functions of modules, methods, class and static methods, and the getters of properties.
    """
    found = inspect.getattr_static(owner, name)
    if isinstance(found, property):
        setattr(owner, name, property(functools.partial(function, found.fget)))
    elif isinstance(found, classmethod | staticmethod):
        setattr(owner, name, staticmethod(functools.partial(function, getattr(owner, name))))
    else:
        setattr(owner, name, _function_calling(function, found))


def add(owner: Any, name: str, function: Callable[..., Any]) -> None:
    """Make ``owner.name`` the function, which moto must not have itself."""
    if hasattr(owner, name):
        raise AttributeError(f"moto has a {owner.__name__}.{name} of its own")
    setattr(owner, name, function)


def _function_calling(function: Callable[..., Any], original: Any) -> Callable[..., Any]:
    """A plain function, as only those become methods; a partial does not."""

    def call(*arguments: Any, **named: Any) -> Any:
        return function(original, *arguments, **named)

    return call
