"""A stand-in for CUDA graphs on a CPU: it records the operations of a function and replays them without Python.

As on a device, recording has no lasting effect, values cannot be read back, and sizes cannot depend on data. Tensors
made during recording are overwritten with garbage afterwards. Stricter than a device, a replay fails if memory that it
reads or writes was freed.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from decoder.session.cuda_graph.capture_guard import BY_DATA, FROM_THE_HOST, NotCapturableError
from decoder.system.device import WARM_UPS, without_gradients

READS = frozenset({Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__array__, Tensor.__dlpack__})
"""Methods that read a tensor's values on the host, or export them, without an operation that could be recorded."""
BY_INDEX = frozenset({torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default})
UNFILLED = frozenset(
    {torch.ops.aten.empty.memory_format, torch.ops.aten.new_empty.default, torch.ops.aten.empty_like.default}
)
"""Operations that allocate memory without filling it."""
GARBAGE = 0x7F
"""Value of each overwritten byte; such numbers are larger than any index, probability or logit."""


@dataclass(frozen=True)
class _Made:
    """A tensor that the record itself makes, by its number."""

    number: int


@dataclass(frozen=True)
class _Outside:
    """A tensor that existed before the recording; the record does not keep it alive."""

    tensor: "weakref.ref[Tensor]"


@dataclass(frozen=True)
class _Call:
    operation: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    tensors: Sequence[int]
    """Indices of the positional arguments that are or contain tensors."""
    named: Sequence[str]
    """Names of the keyword arguments that are or contain tensors."""
    results: Sequence[int | None]
    """Numbers of the results; None for a result that is an argument or no tensor."""


@dataclass(frozen=True)
class Record:
    """Recorded operations in order."""

    calls: Sequence[_Call]

    @property
    def launches(self) -> int:
        """Number of operations that launch at least one kernel; views and unfilled memory launch none."""
        return sum(call.operation not in UNFILLED and not _is_view(call.operation) for call in self.calls)

    def __call__(self) -> None:
        """Replays the operations on the same tensors."""
        made: dict[int, Tensor] = {}
        with without_gradients():
            for call in self.calls:
                args = list(call.args)
                for index in call.tensors:
                    args[index] = _found(args[index], made)
                kwargs = {**call.kwargs, **{name: _found(call.kwargs[name], made) for name in call.named}}
                result = call.operation(*args, **kwargs)
                results = (result,) if isinstance(result, Tensor) else tree_leaves(result)
                numbered = zip(call.results, results, strict=True)
                made.update({number: one for number, one in numbered if number is not None})


def _found(place: Any, made: Mapping[int, Tensor]) -> Any:
    """The tensor of a place, or the tensors of a list of places. `tree_map_only` would take most of a test's time."""
    if isinstance(place, _Made):
        return made[place.number]
    if isinstance(place, _Outside):
        tensor = place.tensor()
        if tensor is None:
            raise NotCapturableError("what a graph reads or writes was freed")
        return tensor
    return [_found(one, made) for one in place] if isinstance(place, list | tuple) else place


class _NoReads(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READS:
            raise NotCapturableError(f"{func.__name__} reads a number back")
        return func(*args, **(kwargs or {}))


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.calls: list[_Call] = []
        self._made: list[Tensor] = []
        self._numbers: dict[int, int] = {}
        """Numbers of the tensors made, by their `id`."""
        self._own: dict[int, Any] = {}
        """Storages allocated during the recording, by address."""
        self._others: dict[int, tuple[Any, Any]] = {}
        """Other storages that were written to, with their previous contents."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs and records one operation."""
        kwargs = kwargs or {}
        _refuse(func, args)
        for tensor in _written(func, args, kwargs):
            self._save(tensor.untyped_storage())
        tensors = [index for index, argument in enumerate(args) if _holds_tensors(argument)]
        named = [name for name, argument in kwargs.items() if _holds_tensors(argument)]
        places, named_places = tree_map_only(Tensor, self._place, (args, kwargs))
        result = func(*args, **kwargs)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        results = [self._number(leaf, given) for leaf in tree_leaves(result)]
        self.calls.append(_Call(func, places, named_places, tensors, named, results))
        return result

    def undo(self) -> None:
        """Restores overwritten memory, and fills the memory of new tensors with garbage."""
        for storage, was in self._others.values():
            storage.copy_(was)
        for storage in self._own.values():
            storage.fill_(GARBAGE)

    def _place(self, tensor: Tensor) -> _Made | _Outside:
        number = self._numbers.get(id(tensor))
        return _Outside(weakref.ref(tensor)) if number is None else _Made(number)

    def _number(self, leaf: Any, given: Sequence[Tensor]) -> int | None:
        if not isinstance(leaf, Tensor) or any(leaf is tensor for tensor in given):
            return None
        storage = leaf.untyped_storage()
        if all(storage._cdata != tensor.untyped_storage()._cdata for tensor in given):
            self._own[storage._cdata] = storage
        number = self._numbers[id(leaf)] = len(self._made)
        self._made.append(leaf)
        return number

    def _save(self, storage: Any) -> None:
        if storage._cdata not in self._own and storage._cdata not in self._others:
            self._others[storage._cdata] = storage, storage.clone()


def _holds_tensors(argument: Any) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in tree_leaves(argument))


def _is_view(func: Any) -> bool:
    return any(result.alias_info and not result.alias_info.is_write for result in func._schema.returns)


def _refuse(func: Any, args: Sequence[Any]) -> None:
    if func not in BY_INDEX and BY_DATA.intersection(func.tags):
        raise NotCapturableError(f"{func} depends on data: it reads a number back, or its size is unknown")
    if func in FROM_THE_HOST:
        raise NotCapturableError(f"{func} copies from the host's memory")
    masks = args[1] if func in BY_INDEX else ()
    if any(mask is not None and mask.dtype in (torch.bool, torch.uint8) for mask in masks):
        raise NotCapturableError(f"{func} by a mask has a size that depends on data")


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[index] if index < len(args) else kwargs.get(argument.name)
            yield from (leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor))


def record(work: Callable[[], object]) -> Record:
    """Records what a device would capture of `work`, without any effect.

    Raises:
        NotCapturableError: A device would refuse it.
    """
    recorder = _Recorder()
    with without_gradients(), _NoReads(), recorder:
        work()
    recorder.undo()
    return Record(recorder.calls)


@dataclass(frozen=True)
class Recorded:
    """Stands in for `decoder.system.device.Graphs`."""

    records: list[Record]

    def capture(self, work: Callable[[], None], undo: Callable[[], None]) -> Callable[[], None]:
        """See `decoder.system.device.Graphs`."""
        for _ in range(WARM_UPS):
            work()
            undo()
        self.records.append(record(work))
        return self.records[-1]
