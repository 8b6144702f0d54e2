"""Keeps what other libraries print away from a terminal that shows something else."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module


@contextmanager
def quiet(*libraries: str) -> Iterator[None]:
    """Neither log lines of these libraries nor warnings; what fails is still raised.

    They are imported before: when they first are, they set the levels of their logs.
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
