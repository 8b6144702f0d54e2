"""The modules that own states: found by trial, and called with rows of several paths.

An owner is the innermost module that is running when a state is stored. The trial also shows which of the module's
arguments and outputs have one row per token: those whose second dimension is the trial's number of tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from decoder.forward.recurrent.tensors import replaced, tensors_of, with_tensors

TRIED = (1, 2, 3, 4, 5, 6, 7)
"""Token ids of the trial; their number must differ from the second dimension of every tensor without one row per token.
"""


@dataclass(frozen=True)
class Owner:
    """A module that owns a state."""

    module: nn.Module
    inputs: frozenset[int]
    """Indices, among all tensors in the module's arguments, of the tensors with one row per token: shape (B, T, ...).
    """
    outputs: frozenset[int]
    """Indices, among all tensors in the module's output, of the tensors with one row per token."""

    def rows_of(self, arguments: Any) -> list[Tensor]:
        """All tensors in the arguments that have one row per token."""
        return [tensor for number, tensor in enumerate(tensors_of(arguments)) if number in self.inputs]

    def with_rows(self, arguments: Any, rows: Sequence[Tensor], cache: Cache) -> Any:
        """The same arguments with other rows and another cache."""
        new = iter(rows)
        filled = with_tensors(arguments, lambda number, tensor: next(new) if number in self.inputs else tensor)
        return replaced(filled, lambda each: cache if isinstance(each, Cache) else each)

    def with_output(self, output: Any, change: Callable[[Tensor], Tensor]) -> Any:
        """The output, with `change` applied to each tensor that has one row per token."""
        return with_tensors(output, lambda number, tensor: change(tensor) if number in self.outputs else tensor)

    def joined(self, outputs: Sequence[Any]) -> Any:
        """Joins the outputs for successive parts of the sequences into one output for the whole sequences."""
        parts = [tensors_of(output) for output in outputs]
        return with_tensors(
            outputs[0],
            lambda number, tensor: torch.cat([part[number] for part in parts], 1) if number in self.outputs else tensor,
        )


def find_owners(module: nn.Module, trial: Callable[[Callable[[], None]], object]) -> tuple[Owner, ...]:
    """Modules that own states, except modules inside another owner.

    Args:
        module: The whole module.
        trial: Runs the whole module over `TRIED`, and calls its argument whenever a state is stored.
    """
    running: list[_Running] = []
    found: dict[nn.Module, Owner] = {}

    def begin(entered: nn.Module, args: Any, named: Any) -> None:
        running.append(_Running(entered, _rows((args, named))))

    def end(left: nn.Module, _: Any, __: Any, output: Any) -> None:
        if (ended := running.pop()).stores:
            found[left] = Owner(left, ended.inputs, _rows(output))

    def stored() -> None:
        running[-1].stores = True

    handles = [each.register_forward_pre_hook(begin, with_kwargs=True) for each in module.modules()]
    handles += [each.register_forward_hook(end, with_kwargs=True, always_call=True) for each in module.modules()]
    try:
        trial(stored)
    finally:
        for handle in handles:
            handle.remove()
    inner = {part for owner in found for part in owner.modules() if part is not owner}
    return tuple(owner for each, owner in found.items() if each not in inner)


@dataclass
class _Running:
    module: nn.Module
    inputs: frozenset[int] = field(default_factory=frozenset)
    stores: bool = False


def _rows(nested: Any) -> frozenset[int]:
    """Indices of the tensors of shape (1, T, ...), where T is the number of tokens of the trial."""
    return frozenset(number for number, tensor in enumerate(tensors_of(nested)) if tensor.shape[:2] == (1, len(TRIED)))
