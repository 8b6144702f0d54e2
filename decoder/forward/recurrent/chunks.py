"""Chunks in which the modules that own states compute a sequence; for a short sequence, the chunks are shortened.

A scan pads a sequence to whole chunks, of 64 or 256 tokens in most families, so for the few tokens of a draft path
nearly all work would be padding. Chunks of another size give the same result except for rounding. Knows neither trees
nor caches.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

FIELD = "chunk_size"
"""Name of the chunk size: an attribute of the module, or an argument of the scan to which the module passes its own
arguments on.
"""


@dataclass(frozen=True)
class Chunks:
    """The chunks of tokens in which one module computes a sequence."""

    module: nn.Module
    size: int
    """Usual size, in tokens."""
    set_to: Callable[[nn.Module, int], Callable[[], None]]
    """Sets another size; returns a function that sets the usual size again."""


def chunks_of(module: nn.Module) -> Chunks | None:
    """The chunks of a module; None if the module has no chunks, or if their size cannot be set."""
    own = getattr(module, FIELD, None)
    if isinstance(own, int):
        return Chunks(module, own, _by_attribute)
    passes_on = any(each.kind is each.VAR_KEYWORD for each in inspect.signature(module.forward).parameters.values())
    usual = _usual_size(type(module).__module__) if passes_on else None
    return Chunks(module, usual, _by_argument) if usual else None


def _usual_size(home: str) -> int | None:
    """Default chunk size of a scan function in the Python module `home`; None if it has no such function."""
    for function in vars(sys.modules[home]).values():
        if inspect.isfunction(function) and FIELD in (known := inspect.signature(function).parameters):
            usual = known[FIELD].default
            return usual if isinstance(usual, int) else None
    return None


@contextmanager
def at_most(tokens: int, chunks: Sequence[Chunks]) -> Iterator[None]:
    """Context in which no chunk is longer than `tokens` tokens, the length of the sequence to compute."""
    with ExitStack() as stack:
        for each in chunks:
            if tokens < each.size:
                stack.callback(each.set_to(each.module, tokens))
        yield


def _by_attribute(module: nn.Module, size: int) -> Callable[[], None]:
    usual = getattr(module, FIELD)
    setattr(module, FIELD, size)
    return lambda: setattr(module, FIELD, usual)


def _by_argument(module: nn.Module, size: int) -> Callable[[], None]:
    def tell(_: nn.Module, args: Any, named: Any) -> Any:
        return args, {**named, FIELD: size}

    return module.register_forward_pre_hook(tell, with_kwargs=True).remove
