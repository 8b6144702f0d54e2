"""Tensors of a CUDA device that does not exist, on a torch without CUDA: every operator checks devices, and counts.

A `CudaTensor` claims to be on `cuda:0` and holds a tensor on the CPU, which has the values, or on the meta device,
where only shapes, strides and dtypes are checked, so that models of any size fit. All work passes `Device.run`, which
refuses operands on different devices, and logs launches, copies and reads that would make the host wait for the device.

Knows neither models nor rounds.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
ATEN = torch.ops.aten
UNFILLED = frozenset(
    f"aten::{name}"
    for name in (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
        *("lift_fresh", "detach", "alias", "_unsafe_view"),
    )
)
"""Operators that launch no kernel although their results are no views: they allocate memory, or rename a tensor."""
READS = frozenset({ATEN._local_scalar_dense.default, ATEN.equal.default, ATEN.is_nonzero.default})
"""Operators whose result is a number on the host."""
ATTENTION_ON_CPU = ATEN._scaled_dot_product_flash_attention_for_cpu.default
ZEROS = frozenset({"aten::zeros", "aten::zeros_like", "aten::new_zeros"})
KEEPS_ZEROS = frozenset(
    f"aten::{name}"
    for name in (
        *("add", "any", "cat", "clone", "detach", "index", "mul", "ne", "select", "slice", "stack", "sum", "_to_copy"),
    )
)
"""Operators whose results are zeros, or False, if all operands are zeros."""
WIDE_PRODUCTS = {ATEN.mm.dtype: ATEN.mm.default, ATEN.addmm.dtype: ATEN.addmm.default}
"""Products of halves with results in float32, which torch has on CUDA alone, and the same for float32 operands."""
SOFTMAX = frozenset({ATEN._softmax.default, ATEN._log_softmax.default})
"""Operators that turn halves to float32 by themselves on CUDA alone, if their third argument says so."""
BY_INDEX = frozenset({ATEN.index.Tensor, ATEN.index_put.default, ATEN.index_put_.default})


class CudaError(RuntimeError):
    """What a CUDA device would refuse."""


class CudaTensor(Tensor):
    """A tensor that claims to be on the CUDA device; `held` is the tensor that stands for its memory."""

    held: Tensor
    is_zero = False
    """Whether all values are known to be zeros, on a device without values."""
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # as torch's documents say

    @staticmethod
    def __new__(cls: type, inner: Tensor) -> "CudaTensor":
        made: CudaTensor = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=CUDA,
        )
        made.held = inner
        return made

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]  # untyped in torch
        del tensor_contents
        return f"CudaTensor({self.held})"

    def tolist(self) -> Any:
        """The values; torch refuses this for subclasses."""
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]  # untyped in torch
        raise CudaError(f"{func} on a CUDA tensor outside of the fake device")


@dataclass(frozen=True)
class Launch:
    """An operator that launches at least one kernel."""

    name: str
    shapes: Sequence[tuple[int, ...]]
    dtypes: Sequence[torch.dtype]
    results: Sequence[tuple[int, ...]]
    result_bytes: int


Record = Callable[[Any, Sequence[Any], dict[str, Any]], Any]
"""(operator, arguments, keyword arguments), all on the memory's device -> result."""


@dataclass
class Device:
    """The fake device of one test: its log, and where its memory is."""

    memory: torch.device = CPU
    """The CPU if tensors have values, the meta device if not."""
    log: list[str] = field(default_factory=list)
    """Requests of the host in order: `replay`, `copy`, `event`, `wait`, `read`, ..."""
    launches: list[Launch] = field(default_factory=list)
    """Operators run directly, outside of captures."""
    first_current: int = 0
    """Current device of a thread that has not set it; 0 is the fake device, any other number a device beside it."""
    stream: Any = None
    """The current stream."""
    fault: str = ""
    """Message of an error after which every later wait for the device fails, as after a sticky error of CUDA."""
    _of_threads: threading.local = field(default_factory=threading.local)
    _captures: threading.local = field(default_factory=threading.local)
    reads_are_errors: bool = False
    """Whether the host may wait only for events; see `torch.cuda.set_sync_debug_mode`."""
    graphs: list[Any] = field(default_factory=list)
    """All captured graphs."""
    replayed: list[Any] = field(default_factory=list)
    """Graphs in the order of their replays."""

    @property
    def capture(self) -> "Capture | None":
        """The capture that is in progress in this thread; other threads may use the device meanwhile."""
        return getattr(self._captures, "current", None)

    @capture.setter
    def capture(self, capture: "Capture | None") -> None:
        self._captures.current = capture

    @property
    def current(self) -> int:
        found: int = getattr(self._of_threads, "current", self.first_current)
        return found

    @current.setter
    def current(self, number: int) -> None:
        self._of_threads.current = number

    def counts(self) -> Counter[str]:
        return Counter(self.log)

    def clear(self) -> None:
        self.log.clear()
        self.launches.clear()
        self.replayed.clear()

    def run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Runs one operator on tensors of the device or of the host, as CUDA would."""
        kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
        given = [*tensors_in(args), *tensors_in(list(kwargs.values()))]
        asked = kwargs.get("device")
        to_cuda = asked is not None and torch.device(asked).type == "cuda"
        of_cuda = any(isinstance(tensor, CudaTensor) for tensor in given)
        if not of_cuda and not to_cuda:
            if self.capture:
                raise CudaError(f"{func} runs on the host within a capture")
            return func(*args, **kwargs)
        to_host = asked is not None and not to_cuda
        self._check(func, given, to_host=to_host)
        if func in READS or (func in BY_INDEX and by_mask(args)):
            self._read(func)
        from_host = any(not isinstance(tensor, CudaTensor) for tensor in given)
        if to_host or (from_host and func in (ATEN.copy_.default, ATEN._to_copy.default)):
            self.waits(f"{func} copies from or to the host")
            self._copy(func, args, kwargs)
        inner = _inner(args)
        inner_kwargs = {name: _inner(value) for name, value in kwargs.items()}
        if asked is not None:
            inner_kwargs["device"] = self.memory if to_cuda else CPU
        if func is ATEN._local_scalar_dense.default and inner[0].is_meta:
            # Values are unknown, but passes depend on whether a model has biases.
            return torch.ones((), dtype=inner[0].dtype).mul(not getattr(given[0], "is_zero", False)).item()
        result = self._computed(func, inner, inner_kwargs)
        if launches(func):
            self.note(func._schema.name.removeprefix("aten::"), given, list(tensors_in(result)))
        if to_host:
            return result
        return _with_zeros(func, given, _wrapped(result, given))

    def _read(self, func: Any) -> None:
        self.waits(f"{func} reads numbers back")
        if self.reads_are_errors:
            raise CudaError(f"{func} makes the host wait for the device")
        self.log.append("read")

    def waits(self, why: str) -> None:
        """Refuses what makes the host wait if the device has failed, or if a capture is in progress."""
        if self.fault:
            raise torch.AcceleratorError(self.fault)
        if self.capture:
            raise CudaError(f"within a capture, {why}")

    def _computed(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self.memory.type == "meta" and func is ATEN.copy_.default and not args[0].is_meta:
            return args[0]
        if self.memory.type == "meta" and kwargs.get("device") == CPU:
            return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        run = self.capture.record if self.capture else run_now
        if self.memory == CPU:
            func, args, kwargs = _on_cpu(func, args, kwargs, run)
        elif func is ATEN.addmm.dtype:
            func, args = ATEN.mm.dtype, args[1:]  # torch 2.11 has no rule for the shape of the sum
        result = run(func, args, kwargs)
        if func is ATTENTION_ON_CPU:
            # The CUDA operator also returns the state of the dropout's random generator.
            return (*result, *torch.zeros(2, dtype=torch.int64))
        return result

    def _copy(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Logs a copy between the host and the device."""
        in_place = func is ATEN.copy_.default
        non_blocking = kwargs.get("non_blocking") or (in_place and len(args) > 2 and args[2])
        to_device = isinstance(args[0], CudaTensor) if in_place else not isinstance(args[0], CudaTensor)
        # For a blocking copy to the device, the host waits for no earlier work.
        if non_blocking or to_device:
            self.log.append("copy" if non_blocking else "upload")
        else:
            self._read(func)

    def _check(self, func: Any, given: Sequence[Tensor], *, to_host: bool) -> None:
        if to_host or func in (ATEN.copy_.default, ATEN._to_copy.default):
            return
        for tensor in given:
            # Outside of captures, torch uploads numbers and indices.
            uploaded = not self.capture and (tensor.dim() == 0 or func in BY_INDEX)
            if not isinstance(tensor, CudaTensor) and not uploaded:
                raise CudaError(f"{func}: operands on cuda:0 and on {tensor.device}")

    def note(self, name: str, given: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        """Logs a launch, in the capture that is in progress or else outside of captures."""
        launch = Launch(
            name,
            [tuple(tensor.shape) for tensor in given],
            [tensor.dtype for tensor in given],
            [tuple(tensor.shape) for tensor in made],
            sum(tensor.numel() * tensor.element_size() for tensor in made),
        )
        (self.capture.launches if self.capture else self.launches).append(launch)


@dataclass
class Capture:
    """A capture in progress: the operators so far, and what runs them."""

    record: Record
    launches: list[Launch] = field(default_factory=list)


@cache
def _is_composite(func: Any) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


@cache
def launches(func: Any) -> bool:
    """Whether an operator launches a kernel; views and allocations do not."""
    schema = func._schema
    is_view = any(each.alias_info and not each.alias_info.is_write for each in schema.returns)
    return not is_view and schema.name not in UNFILLED and not schema.name.startswith("prim")


class _Intercept(TorchDispatchMode):
    def __init__(self, device: Device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # In inference mode, operators arrive here before torch has decomposed them.
        if _is_composite(func):
            with self:
                return func.decompose(*args, **(kwargs or {}))
        return self._device.run(func, args, kwargs or {})


@contextmanager
def intercepted(device: Device) -> Iterator[None]:
    """Sends all operators of this thread to the device."""
    # Otherwise torch.tensor(..., device="cuda") copies below the level at which operators are intercepted.
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with _Intercept(device):
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


def _inner(value: Any) -> Any:
    """An argument with the tensors that stand for the memory of the device."""
    if isinstance(value, CudaTensor):
        return value.held
    return [_inner(each) for each in value] if isinstance(value, list | tuple) else value


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors of an argument or a result."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)


def by_mask(args: Sequence[Any]) -> bool:
    """Whether an index among the arguments of indexing is a mask, so that the result's size depends on data."""
    return any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in args[1])


def _with_zeros(func: Any, given: Sequence[Tensor], result: Any) -> Any:
    """The result, in which tensors of zeros are marked."""
    name = func._schema.name
    if name in ZEROS or (name in KEEPS_ZEROS and all(getattr(tensor, "is_zero", False) for tensor in given)):
        for tensor in tensors_in(result):
            tensor.is_zero = True  # type: ignore[attr-defined]  # the result's tensors are CudaTensors
    return result


def _wrapped(result: Any, given: Sequence[Tensor]) -> Any:
    """The result with tensors of the device; a tensor that was given, and written to, is returned itself."""
    own = {id(_inner(tensor)): tensor for tensor in given}

    def wrap(value: Any) -> Any:
        if isinstance(value, Tensor):
            return own[id(value)] if id(value) in own else CudaTensor(value)
        return type(value)(map(wrap, value)) if isinstance(value, list | tuple) else value

    # A view of a tensor from outside of inference mode is no inference tensor.
    with torch.inference_mode(mode=False):
        return wrap(result)


def run_now(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Runs an operator at once."""
    return func(*args, **kwargs)


def _on_cpu(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], run: Record
) -> tuple[Any, Sequence[Any], dict[str, Any]]:
    """The operator, with its arguments, that computes on a CPU what a CUDA operator computes; `run` prepares them."""
    if func is ATEN._scaled_dot_product_efficient_attention.default:
        query, key, value, mask, _, *rest = args
        return ATTENTION_ON_CPU, (query, key, value, *rest), {"attn_mask": mask, **kwargs}
    if func in WIDE_PRODUCTS:
        plain, to_float32 = WIDE_PRODUCTS[func], {"dtype": torch.float32}
        return plain, [run(ATEN._to_copy.default, (each,), to_float32) for each in args[:-1]], kwargs
    if func in SOFTMAX and args[2]:
        logits, dim, _ = args
        return func, (run(ATEN._to_copy.default, (logits,), {"dtype": torch.float32}), dim, False), kwargs
    return func, args, kwargs
