"""Imports that wait until they are needed: transformers takes longer than torch, and most runs do without it."""

from importlib import import_module
from types import ModuleType

from decoder.errors import not_importable


def imported(name: str) -> ModuleType:
    """A module of this package that imports transformers.

    Raises:
        ModelError: It cannot be imported.
    """
    try:
        return import_module(name)
    except (ImportError, OSError) as error:
        raise not_importable(error) from error
