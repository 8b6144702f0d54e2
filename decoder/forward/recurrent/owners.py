"""Modules that own states: found by a trial pass, and made by hooks to compute whole paths, while all other modules
compute one row per node.

Arguments and outputs of modules are nested containers of tensors. Scans compute a sequence in chunks. For the few
tokens of a draft path, chunks are shortened, since a full chunk would be mostly padding.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.cache_utils import Cache

from decoder.forward.recurrent.states import Drafted, OwnerCall, PathBatch


def replaced(nested: Any, new: Callable[[Any], Any]) -> Any:
    """A copy of nested tuples, lists and dictionaries with `new(object)` in place of each innermost object."""
    if isinstance(nested, tuple | list):
        return type(nested)(replaced(each, new) for each in nested)
    if isinstance(nested, dict):
        return {key: replaced(each, new) for key, each in nested.items()}
    return new(nested)


def tensors_of(nested: Any) -> list[Tensor]:
    found: list[Tensor] = []
    replaced(nested, lambda each: found.append(each) if isinstance(each, Tensor) else None)
    return found


def with_tensors(nested: Any, new: Callable[[int, Tensor], Tensor]) -> Any:
    numbers = iter(range(len(tensors_of(nested))))
    return replaced(nested, lambda each: new(next(numbers), each) if isinstance(each, Tensor) else each)


FIELD = "chunk_size"
"""Name of the chunk size: an attribute of the module, or an argument that the module passes on to a scan function."""


@dataclass(frozen=True)
class Chunks:
    """The chunks of tokens in which one module computes a sequence."""

    module: nn.Module
    size: int
    """Usual size, in tokens."""
    set_to: Callable[[nn.Module, int], Callable[[], None]]
    """Sets another size; returns a function that sets the usual size again."""


def chunks_of(module: nn.Module) -> Chunks | None:
    """None if the module has no chunks, or if their size cannot be set."""
    own = getattr(module, FIELD, None)
    if isinstance(own, int):
        return Chunks(module, own, _by_attribute)
    passes_on = any(each.kind is each.VAR_KEYWORD for each in inspect.signature(module.forward).parameters.values())
    usual = _usual_size(type(module).__module__) if passes_on else None
    return Chunks(module, usual, _by_argument) if usual else None


def _usual_size(home: str) -> int | None:
    """Default chunk size of a scan function in the Python module `home`."""
    for function in vars(sys.modules[home]).values():
        if inspect.isfunction(function) and FIELD in (known := inspect.signature(function).parameters):
            usual = known[FIELD].default
            return usual if isinstance(usual, int) else None
    return None


@contextmanager
def at_most(tokens: int, chunks: Sequence[Chunks]) -> Iterator[None]:
    """Within the context, chunks have at most `tokens` tokens, the length of the sequence to compute."""
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


TRIED = (1, 2, 3, 4, 5, 6, 7)
"""Token ids of the trial. A tensor of shape (1, number of these ids, ...) is taken to have one row per token."""


@dataclass(frozen=True)
class Owner:
    """A module that stores a state, and its arguments and outputs with one row per token."""

    module: nn.Module
    inputs: frozenset[int]
    """Indices of the tensors with one row per token, shape (B, T, ...), among all tensors in the module's arguments."""
    outputs: frozenset[int]
    """Indices of the tensors with one row per token among all tensors in the module's output."""

    def rows_of(self, arguments: Any) -> list[Tensor]:
        return [tensor for number, tensor in enumerate(tensors_of(arguments)) if number in self.inputs]

    def with_rows(self, arguments: Any, rows: Sequence[Tensor], cache: Cache) -> Any:
        new = iter(rows)
        filled = with_tensors(arguments, lambda number, tensor: next(new) if number in self.inputs else tensor)
        return replaced(filled, lambda each: cache if isinstance(each, Cache) else each)

    def with_output(self, output: Any, change: Callable[[Tensor], Tensor]) -> Any:
        return with_tensors(output, lambda number, tensor: change(tensor) if number in self.outputs else tensor)

    def joined(self, outputs: Sequence[Any]) -> Any:
        """Joins the outputs for successive parts of the sequences."""
        parts = [tensors_of(output) for output in outputs]
        return with_tensors(
            outputs[0],
            lambda number, tensor: torch.cat([part[number] for part in parts], 1) if number in self.outputs else tensor,
        )


def find_owners(module: nn.Module, trial: Callable[[Callable[[], None]], object]) -> tuple[Owner, ...]:
    """The outermost modules that own states. `trial` calls its argument whenever a state is stored."""
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


@contextmanager
def by_paths(
    owners: Sequence[Owner], batch: PathBatch, drafted: Drafted, cache: Cache, *, stepwise: bool
) -> Iterator[None]:
    """Within the context, owners compute the paths of `batch`, and `drafted` keeps the inputs of the owners."""
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
    """Splits sequences into steps of one token."""
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
    """Number of calls of owners so far in the pass."""

    def enter(self, number: int, _: nn.Module, args: Any, named: Any) -> Any:
        """Replaces an owner's rows by paths; with `stepwise`, by the first token of each path."""
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
        """Turns an owner's output back into rows; with `stepwise`, first computes all further steps."""
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
