"""Imports of libraries: deferred until they are needed, and without warnings and log lines, which would disturb the
terminal app's screen. Importing transformers takes longer than importing torch, and most runs do not need it.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from decoder.errors import not_importable


@contextmanager
def quiet(*libraries: str) -> Iterator[None]:
    """Suppresses warnings, and log lines of these libraries; errors are still raised. The libraries are imported first,
    because their import sets the levels of their loggers.
    """
    for name in libraries:
        import_module(name)
    loggers = [logging.getLogger(name) for name in libraries]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def imported(name: str) -> ModuleType:
    """Imports a module of this package that imports transformers. Raises ModelError if it cannot be imported."""
    try:
        return import_module(name)
    except (ImportError, OSError) as error:
        raise not_importable(error) from error
