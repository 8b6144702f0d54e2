"""A stand-in for CUDA graphs on a CPU: it records the operations of a function and replays them without Python.

As on a device, recording has no lasting effect, values cannot be read back, and sizes cannot depend on data. Tensors
made during recording are overwritten with garbage afterwards. Stricter than a device, a replay fails if memory that it
reads or writes was freed.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from decoder.session.cuda_graph.capture_guard import BY_DATA, FROM_THE_HOST, NotCapturableError
from decoder.system.device import WARM_UPS, without_gradients
from tests.fake_cuda.tensors import BY_INDEX, by_mask, launches, tensors_in

READS = frozenset({Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__array__, Tensor.__dlpack__})
"""Methods that read a tensor's values on the host, or export them, without an operation that could be recorded."""
GARBAGE = 0x7F
"""Value of each overwritten byte; such numbers are larger than any index, probability or logit."""


@dataclass(frozen=True)
class Record:
    """Recorded operations in order."""

    operations: Sequence[Any]
    outside: Sequence["weakref.ref[Tensor]"]
    """Tensors that existed before the recording; the record does not keep them alive."""
    replay: Callable[..., None]
    """Calls the operations, given the tensors of `outside`."""

    @property
    def launches(self) -> int:
        """Number of operations that launch at least one kernel; views and unfilled memory launch none."""
        return sum(map(launches, self.operations))

    def __call__(self) -> None:
        outside = [tensor() for tensor in self.outside]
        if any(tensor is None for tensor in outside):
            raise NotCapturableError("what a graph reads or writes was freed")
        with without_gradients():
            self.replay(*outside)


class _NoReads(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READS:
            raise NotCapturableError(f"{func.__name__} reads a number back")
        return func(*args, **(kwargs or {}))


class Recorder(TorchDispatchMode):
    """Writes the source of a function that replays the operations: an interpreter would take most of a test's time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self._operations: list[Any] = []
        self._lines: list[str] = []
        self._constants: dict[str, Any] = {}
        """Operations and arguments that are no tensors, by their names in the source."""
        self._names: dict[int, str] = {}
        """Names of all tensors in the source, by their `id`."""
        self._outside: list[Tensor] = []
        self._made: list[Tensor] = []
        """New tensors, kept so that no two have the same `id`."""
        self._own: dict[int, Any] = {}
        """Storages allocated during the recording, by address."""
        self._others: dict[int, tuple[Any, Any]] = {}
        """Other storages that were written to, with their previous contents."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.run(func, args, kwargs or {})

    def run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        _refuse(func, args)
        for place, name in _written(func):
            for tensor in tensors_in(args[place] if place < len(args) else kwargs.get(name)):
                self._save(tensor.untyped_storage())
        given = [*tensors_in(args), *tensors_in(list(kwargs.values()))]
        words = [*map(self._word, args), *(f"{name}={self._word(value)}" for name, value in kwargs.items())]
        call = f"{self._constant(func)}({', '.join(words)})"
        result = func(*args, **kwargs)
        if isinstance(result, list | tuple):
            call = f"{', '.join(self._result(each, given) for each in result)}, = {call}"
        else:
            call = f"{self._result(result, given)} = {call}"
        self._lines.append(call)
        self._operations.append(func)
        return result

    def record(self) -> Record:
        arguments = ", ".join(self._names[id(tensor)] for tensor in self._outside)
        source = "\n ".join((f"def replay({arguments}):", *self._lines, "pass"))
        exec(compile(source, "record", "exec"), self._constants)  # noqa: S102 - the source is made here
        return Record(self._operations, list(map(weakref.ref, self._outside)), self._constants["replay"])

    def undo(self) -> None:
        """Restores overwritten memory, and fills the memory of new tensors with garbage."""
        for storage, was in self._others.values():
            storage.copy_(was)
        for storage in self._own.values():
            storage.fill_(GARBAGE)

    def _word(self, argument: Any) -> str:
        """An argument in the source."""
        if isinstance(argument, Tensor):
            if id(argument) not in self._names:
                self._names[id(argument)] = f"outside_{len(self._outside)}"
                self._outside.append(argument)
            return self._names[id(argument)]
        if next(tensors_in(argument), None) is not None:
            return f"[{', '.join(map(self._word, argument))}]"
        return self._constant(argument)

    def _constant(self, value: Any) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants[name] = value
        return name

    def _result(self, result: Any, given: Sequence[Tensor]) -> str:
        """A result in the source: a new name, or `_` for an argument and for what is no tensor."""
        if not isinstance(result, Tensor) or any(result is tensor for tensor in given):
            return "_"
        storage = result.untyped_storage()
        if all(storage._cdata != tensor.untyped_storage()._cdata for tensor in given):
            self._own[storage._cdata] = storage
        name = self._names[id(result)] = f"made_{len(self._made)}"
        self._made.append(result)
        return name

    def _save(self, storage: Any) -> None:
        if storage._cdata not in self._own and storage._cdata not in self._others:
            self._others[storage._cdata] = storage, storage.clone()


def _refuse(func: Any, args: Sequence[Any]) -> None:
    if func not in BY_INDEX and BY_DATA.intersection(func.tags):
        raise NotCapturableError(f"{func} depends on data: it reads a number back, or its size is unknown")
    if func in FROM_THE_HOST:
        raise NotCapturableError(f"{func} copies from the host's memory")
    if func in BY_INDEX and by_mask(args):
        raise NotCapturableError(f"{func} by a mask has a size that depends on data")


@cache
def _written(func: OpOverload) -> Sequence[tuple[int, str]]:
    """Places and names of the arguments that an operation writes to."""
    arguments = enumerate(func._schema.arguments)
    return [(place, each.name) for place, each in arguments if each.alias_info is not None and each.alias_info.is_write]


def record(work: Callable[[], object]) -> Record:
    """Records what a device would capture of `work`, without any effect.

    Raises:
        NotCapturableError: A device would refuse it.
    """
    recorder = Recorder()
    with without_gradients(), _NoReads(), recorder:
        work()
    recorder.undo()
    return recorder.record()


@dataclass(frozen=True)
class Recorded:
    """Stands in for `decoder.system.device.Graphs`."""

    records: list[Record]

    def capture(self, work: Callable[[], None], undo: Callable[[], None]) -> Callable[[], None]:
        for _ in range(WARM_UPS):
            work()
            undo()
        self.records.append(record(work))
        return self.records[-1]
