"""Deferred imports: modules that import transformers are imported only when they are needed. Importing transformers
takes longer than importing torch, and most runs do not need transformers.
"""

from importlib import import_module
from types import ModuleType

from decoder.errors import not_importable


def imported(name: str) -> ModuleType:
    """Imports a module of this package that imports transformers. Raises ModelError if it cannot be imported."""
    try:
        return import_module(name)
    except (ImportError, OSError) as error:
        raise not_importable(error) from error
