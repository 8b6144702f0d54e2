"""torch.cuda of the fake device: streams, events and graphs that log every request.

Work runs at once, so nothing is ever waited for in fact. A graph replays the operators that were recorded during its
capture; without values, a replay computes nothing.
"""

import ctypes
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from tests.fake_cuda.recording import Recorder
from tests.fake_cuda.tensors import ATEN, CPU, Capture, CudaError, CudaTensor, Device, Launch, intercepted, run_now

MEMORY = 140 << 30
FAKE_NAME = "a fake device"


@contextmanager
def fake_cuda(*, values: bool = True, current: int = 0) -> Iterator[Device]:
    """Within: torch has a CUDA device, in this thread and in threads that start.

    Args:
        values: Whether tensors have values; if not, only shapes are computed, and models of any size fit.
        current: Current device of a thread that has not set it; 0 is the fake device.
    """
    device = Device(CPU if values else torch.device("meta"), first_current=current)
    _register_guard()
    driver = _driver(device)
    start = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        with intercepted(device):
            start(thread)

    patched: list[tuple[Any, str, Any]] = [
        *((torch.cuda, name, value) for name, value in driver.items()),
        (functional, "scaled_dot_product_attention", attention),
        (torch, "rms_norm", rms_norm),
        (torch, "compile", _uncompiled),
        (torch, "Generator", Generator),
        (torch.utils, "swap_tensors", _swapped),
        (torch.profiler, "profile", lambda **_: Profile(device)),
        (threading.Thread, "run", run),
        *([] if values else _launches_of_triton(device)),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in patched]
    with ExitStack() as stack:
        for owner, name, value in before:
            stack.callback(setattr, owner, name, value)
        for owner, name, value in patched:
            setattr(owner, name, value)
        # Otherwise a moved parameter keeps its Python object, which has no inner tensor.
        stack.callback(
            torch.__future__.set_swap_module_params_on_conversion,
            torch.__future__.get_swap_module_params_on_conversion(),
        )
        torch.__future__.set_swap_module_params_on_conversion(True)
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(intercepted(device))
        yield device


def without_values() -> AbstractContextManager[Device]:
    """Within: the device computes shapes only, and launches of Triton kernels are logged."""
    return fake_cuda(values=False)


_swap = torch.utils.swap_tensors


def _swapped(one: Tensor, other: Tensor) -> None:
    """Swaps two tensors, unless they are the same memory: a module that is moved to where it is stays as it is."""
    storages = [each.held.untyped_storage()._cdata for each in (one, other) if isinstance(each, CudaTensor)]
    if len(storages) == 2 and storages[0] == storages[1]:
        return
    _swap(one, other)  # type: ignore[no-untyped-call]  # untyped in torch


class Generator(torch._C.Generator):
    """A generator on the CPU, where all numbers are, whatever its device."""

    @staticmethod
    def __new__(cls: "type[Generator]", _: object = None) -> "Generator":
        return torch._C.Generator.__new__(cls)


def _uncompiled(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
    """torch.compile for a device for which nothing can be compiled: the function itself."""
    return function


def _register_guard() -> None:
    """Gives CUDA a device guard that does nothing: torch asks for one in views by index and in conversions.

    Torch has such a guard for machines with CUDA's libraries but without a device, and takes it in place of a guard
    that counts no devices. A torch without CUDA has no guard, so for this one call it gets one whose methods return 0.
    """
    library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libc10.so"))
    guards = (ctypes.c_void_p * 2).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    if guards[1] is None:
        zero = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: 0)
        methods = (ctypes.c_void_p * 64)(*[ctypes.cast(zero, ctypes.c_void_p).value] * 64)
        guard = ctypes.c_void_p(ctypes.addressof(methods))
        guards[1] = ctypes.addressof(guard)
    torch._C._ensureCUDADeviceGuardSet()


def _launches_of_triton(device: Device) -> list[tuple[Any, str, Any]]:
    """A replacement for the launch of Triton's kernels that only logs it; empty if Triton is not installed."""
    if find_spec("triton") is None:
        return []
    from triton.runtime.jit import JITFunction  # noqa: PLC0415 - see above

    def run(kernel: Any, *arguments: Any, **_: Any) -> None:
        given = [each for each in arguments if isinstance(each, Tensor)]
        if any(not isinstance(tensor, CudaTensor) for tensor in given):
            raise CudaError(f"{kernel.__name__}: an operand is not on cuda:0")
        if device.current:
            raise CudaError(f"{kernel.__name__}: launched on cuda:{device.current}, where no operand is")
        device.note(kernel.__name__, given, [])

    return [(JITFunction, "run", run)]


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - torch's signature
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002 - torch's signature
) -> Tensor:
    """Attention by the kernel that torch chooses on CUDA under a mask, without cuDNN, after this kernel's own checks.

    On the host's tensors, torch's own function.
    """
    if query.device.type != "cuda":
        return _attention(
            query, key, value, attn_mask, dropout_p, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        key, value = (each.repeat_interleave(query.shape[-3] // key.shape[-3], -3) for each in (key, value))
    for tensor in (query, key, value):
        _check_aligned(tensor)
    if attn_mask is not None:
        if attn_mask.dtype not in (query.dtype, torch.bool):
            raise CudaError(f"attention: a mask of {attn_mask.dtype} beside queries of {query.dtype}")
        if attn_mask.dtype is torch.bool:
            attn_mask = torch.zeros(attn_mask.shape, dtype=query.dtype, device=query.device).masked_fill_(
                ~attn_mask, -torch.inf
            )
        attn_mask = attn_mask.expand(*query.shape[:-1], key.shape[-2])
    if query.dim() == 3:
        mask = None if attn_mask is None else attn_mask[None]
        return _efficient(query[None], key[None], value[None], mask, is_causal, scale)[0]
    return _efficient(query, key, value, attn_mask, is_causal, scale)


_attention = functional.scaled_dot_product_attention


def rms_norm(rows: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """The norm as the one kernel that torch has for it on CUDA; elsewhere, torch divides it into several operators."""
    if rows.device.type != "cuda" or weight is not None or eps is None:
        return _rms_norm(rows, shape, weight, eps)
    normed: Tensor = _one_norm(rows, list(shape), eps)
    return normed


_rms_norm = torch.rms_norm


@torch.library.custom_op("fake_cuda::rms_norm", mutates_args=())
def _one_norm(rows: Tensor, shape: list[int], eps: float) -> Tensor:
    return _rms_norm(rows, shape, None, eps)


_one_norm.register_fake(lambda rows, *_: torch.empty_like(rows))


def _efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,  # noqa: FBT001 - torch's order
    scale: float | None,
) -> Tensor:
    found: Tensor = ATEN._scaled_dot_product_efficient_attention(
        query, key, value, mask, False, 0.0, is_causal, scale=scale
    )[0]
    return found


def _check_aligned(tensor: Tensor) -> None:
    """Checks what the memory-efficient kernel requires of an operand, in units of 16 bytes."""
    unit = max(1, 16 // tensor.element_size())
    if tensor.stride(-1) != 1:
        raise CudaError(f"attention: the last dimension of {tuple(tensor.shape)} is not dense: {tensor.stride()}")
    aligned = [tensor.storage_offset(), *(stride for stride in tensor.stride()[:-1])]
    if tensor.element_size() < 4 and any(number % unit for number in aligned):
        raise CudaError(f"attention: {tuple(tensor.shape)} with strides {tensor.stride()} is not aligned")


class Profile:
    """Stands in for `torch.profiler.profile`: how often each operator runs, in replays or alone, without times."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._began = 0, 0
        self._names = Counter[str]()

    def __enter__(self) -> "Profile":
        self._began = len(self._device.replayed), len(self._device.launches)
        return self

    def __exit__(self, *_: object) -> None:
        replays, direct = self._began
        of_graphs = (launch for graph in self._device.replayed[replays:] for launch in graph.launches)
        self._names.update(launch.name for launch in (*of_graphs, *self._device.launches[direct:]))

    def key_averages(self) -> Sequence[SimpleNamespace]:
        """Operators in place of kernels; they take no time, since nothing can be known about times."""
        return [
            SimpleNamespace(key=f"aten::{name}", count=count, self_device_time_total=0.0, device_type="DeviceType.CUDA")
            for name, count in self._names.items()
        ]


class Graph:
    """A captured graph."""

    device: ClassVar[Device]

    def __init__(self, *_: Any, **__: Any) -> None:
        self.replayed: Any = None
        self.launches: list[Launch] = []
        self.options: dict[str, Any] = {}

    def replay(self) -> None:
        self.device.waits("another graph is replayed")
        self.device.log.append("replay")
        self.device.replayed.append(self)
        if self.replayed:
            self.replayed()


class Stream:
    """A stream; all work runs at once, so streams need no order."""

    device: ClassVar[Device]

    def wait_stream(self, _: object) -> None:
        self.device.log.append(f"{'the current' if self is self.device.stream else 'another'} stream waits")

    def synchronize(self) -> None:
        self.device.waits("the host waits for a stream")
        self.device.log.append("wait for all")


class Event:
    """An event, which is reached at once."""

    device: ClassVar[Device]

    def __init__(self, *, enable_timing: bool = False) -> None:
        self.timed, self.reached_s = enable_timing, 0.0

    def record(self, _: object = None) -> None:
        self.device.waits("an event is recorded")
        self.reached_s = time.perf_counter()
        self.device.log.append("event")

    def synchronize(self) -> None:
        self.device.waits("the host waits for an event")
        self.device.log.append("wait")

    def elapsed_time(self, later: "Event") -> float:
        if not (self.timed and later.timed):
            raise CudaError("an event without times")
        return 1000 * max(1e-6, later.reached_s - self.reached_s)


def _driver(device: Device) -> dict[str, Any]:
    """Replacements of attributes of torch.cuda."""
    classes: dict[str, Any] = {
        name: type(name, (parent,), {"device": device})
        for name, parent in (("CUDAGraph", Graph), ("Stream", Stream), ("Event", Event))
    }

    @contextmanager
    def stream(chosen: Stream) -> Iterator[None]:
        before, device.stream = device.stream, chosen
        try:
            yield
        finally:
            device.stream = before

    @contextmanager
    def capture(graph: Graph, stream: Stream | None = None, **options: Any) -> Iterator[None]:
        # torch.cuda.graph waits for the device before it begins.
        device.log.append("wait for all")
        device.graphs.append(graph)
        graph.options = options
        before, device.stream = device.stream, stream or classes["Stream"]()
        recorder = Recorder() if device.memory == CPU else None
        device.capture = Capture(recorder.run if recorder else run_now)
        try:
            yield
        finally:
            graph.launches, device.capture = device.capture.launches, None
            if recorder:
                recorder.undo()
        # As in torch, the stream of a capture that fails stays the current one.
        device.stream = before
        if recorder:
            graph.replayed = recorder.record()

    @contextmanager
    def nothing(*_: Any, **__: Any) -> Iterator[None]:
        yield

    def set_device(chosen: torch.device) -> None:
        device.current = chosen.index

    def synchronize(*_: Any) -> None:
        device.waits("the host waits for the device")
        device.log.append("wait for all")

    def set_sync_debug_mode(mode: str) -> None:
        device.reads_are_errors = mode == "error"

    device.stream = classes["Stream"]()
    properties = SimpleNamespace(name=FAKE_NAME, total_memory=MEMORY, major=9, minor=0, multi_processor_count=132)
    return {
        **classes,
        "stream": stream,
        "device": nothing,
        "graph": capture,
        "current_stream": lambda *_: device.stream,
        "graph_pool_handle": lambda: (0, 1),
        "synchronize": synchronize,
        "set_sync_debug_mode": set_sync_debug_mode,
        **dict.fromkeys(("is_available", "is_initialized"), lambda: True),
        **dict.fromkeys(("_lazy_init", "empty_cache", "reset_peak_memory_stats"), lambda *_: None),
        **dict.fromkeys(("memory_reserved", "memory_allocated", "max_memory_allocated"), lambda *_: 0),
        "device_count": lambda: 1,
        "current_device": lambda: device.current,
        "set_device": set_device,
        "mem_get_info": lambda *_: (MEMORY, MEMORY),
        "get_device_name": lambda *_: properties.name,
        "get_device_properties": lambda *_: properties,
        "get_device_capability": lambda *_: (9, 0),
    }
