"""Hooks by which the owners of states compute root-to-leaf paths, while all other modules compute each row once.

Before an owner runs, its rows are arranged as B paths of T rows. After it has run, each row of its output is taken from
one of the paths that contain the row.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.cache_utils import Cache

from decoder.forward.recurrent.owners import Owner
from decoder.forward.recurrent.paths import PathBatch
from decoder.forward.recurrent.states import Drafted, OwnerCall


@contextmanager
def by_paths(
    owners: Sequence[Owner], batch: PathBatch, drafted: Drafted, cache: Cache, *, stepwise: bool
) -> Iterator[None]:
    """Context of a pass in which the owners compute the paths of `batch`; the owners' inputs are kept in `drafted`."""
    hooks = _PathHooks(owners, batch, drafted, cache, stepwise, len(drafted.parents) - len(batch.places))
    handles = [
        handle
        for number, owner in enumerate(owners)
        for handle in (
            owner.module.register_forward_pre_hook(partial(hooks.enter, number), with_kwargs=True),
            owner.module.register_forward_hook(hooks.leave),
        )
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def computed_again(owner: Owner, call: OwnerCall, path: Sequence[int], cache: Cache, *, stepwise: bool) -> None:
    """Repeats an owner's call for the rows of one path, so that `cache` gets the states after the path."""
    rows = [kept[torch.tensor(path, device=kept.device)][None] for kept in call.inputs]
    for part in _steps(rows) if stepwise else [rows]:
        args, named = owner.with_rows(call.arguments, part, cache)
        owner.module(*args, **named)


def _steps(rows: Sequence[Float[Tensor, "B T ..."]]) -> list[list[Float[Tensor, "B 1 ..."]]]:
    """For each step along the sequences, the part of every tensor that belongs to the step."""
    return [list(step) for step in zip(*(each.split(1, 1) for each in rows), strict=True)]


@dataclass
class _PathHooks:
    owners: Sequence[Owner]
    batch: PathBatch
    drafted: Drafted
    cache: Cache
    stepwise: bool
    first: int
    """Number of drafted rows from earlier passes."""
    calls: int = 0
    """Number of calls of owners so far."""

    def enter(self, number: int, _: nn.Module, args: Any, named: Any) -> Any:
        """Pre-hook that replaces an owner's rows by paths; with `stepwise`, by the first step of all paths."""
        owner, new = self.owners[number], (args, named)
        rows = [tensor[0] for tensor in owner.rows_of(new)]
        if self.calls == len(self.drafted.calls):
            self.drafted.calls.append(OwnerCall(number, new, rows))
        else:
            call = self.drafted.calls[self.calls]
            earlier = [kept[: self.first] for kept in call.inputs]
            call.arguments, call.inputs = new, [torch.cat(pair) for pair in zip(earlier, rows, strict=True)]
        paths = self._paths()
        return owner.with_rows(new, [each[:, :1] for each in paths] if self.stepwise else paths, self.cache)

    def leave(self, module: nn.Module, _: Any, output: Any) -> Any:
        """Hook that turns an owner's output back into rows; with `stepwise`, first computes all further steps."""
        call = self.drafted.calls[self.calls]
        owner = self.owners[call.owner]
        if self.stepwise:
            further = [owner.with_rows(call.arguments, step, self.cache) for step in _steps(self._paths())[1:]]
            output = owner.joined([output, *(module.forward(*args, **named) for args, named in further)])
        self.calls += 1
        return owner.with_output(output, self._rows)

    def _paths(self) -> list[Float[Tensor, "B T ..."]]:
        return [kept[self._index(self.batch.padded, kept)] for kept in self.drafted.calls[self.calls].inputs]

    def _rows(self, output: Float[Tensor, "B T ..."]) -> Float[Tensor, "1 N ..."]:
        return output.flatten(0, 1)[self._index(self.batch.places, output)][None]

    @staticmethod
    def _index(numbers: Any, beside: Tensor) -> Int[Tensor, "..."]:
        return torch.from_numpy(numbers).to(beside.device)
