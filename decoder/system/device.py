"""Devices: choice of a device, and its clock, memory and CUDA graphs. No other module uses torch.cuda."""

import functools
import gc
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from decoder.errors import ConfigError, DeviceError, LostDeviceError, first_line, quoted, shortened
from decoder.system.host_memory import host_memory
from decoder.system.waiting import waited_here_s

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
WARM_UPS = 2
"""Number of runs before a capture, in which libraries choose kernels and allocate workspace."""
HOPPER = 9
"""Major compute capability of H100 and H200 (CUDA C++ Programming Guide)."""
NATIVE_BF16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
CUDNN_RANK = "TORCH_CUDNN_SDPA_DEPRIORITIZED"
"""Environment variable that sets the priority of cuDNN's attention in torch."""
GROUPED = "TRANSFORMERS_SDPA_FORCE_GQA"
"""Environment variable with which transformers passes shared keys and values to torch without copies per query head."""
_GROUPED_BY_USER = os.environ.get(GROUPED)


def choose_device(name: str) -> torch.device:
    """`name` is auto, cpu, cuda or cuda:N. Raises ConfigError for other names, DeviceError for a missing device."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise ConfigError(f"device is {quoted(name)}; give auto, cpu, cuda or cuda:N", "device")
    if kind == "cuda":
        present = torch.cuda.device_count()
        if not present:
            raise DeviceError(
                f"device {shortened(name)} was requested, but torch sees no CUDA device; give --device cpu or auto",
                "device",
            )
        if int(index or 0) >= present:
            raise DeviceError(
                f"device {shortened(name)} was requested, but the last CUDA device is cuda:{present - 1}; "
                "give --device cuda or auto",
                "device",
            )
    return torch.device(name)


def choose_dtype(
    name: str, device: torch.device, checkpoint: torch.dtype | None, bfloat16_pays: Callable[[], bool] = lambda: True
) -> torch.dtype:
    """`auto` means the checkpoint's dtype on CUDA, and the faster of bfloat16 and float32 on a CPU: `bfloat16_pays`
    compares them, and is called only if the CPU has bfloat16 instructions. Raises ConfigError for an unknown name.
    """
    if name != "auto":
        if name not in DTYPES:
            raise ConfigError(f"dtype is {quoted(name)}; give auto, {', '.join(DTYPES)}", "dtype")
        return DTYPES[name]
    if device.type == "cuda":
        return checkpoint or torch.float16
    return torch.bfloat16 if cpu_computes_bf16() and bfloat16_pays() else torch.float32


def choose_draft_dtype(name: str, target: torch.dtype) -> torch.dtype:
    """`auto` means the target's dtype. Raises ConfigError for an unknown name."""
    if name == "auto":
        return target
    if name not in DTYPES:
        raise ConfigError(f"the draft's dtype is {quoted(name)}; give auto, {', '.join(DTYPES)}", "draft_dtype")
    return DTYPES[name]


def require_compilable(device: torch.device, *, exact: bool) -> None:
    """Raises ConfigError for --compile with --exact or without CUDA graphs, since only passes in CUDA graphs are
    compiled.
    """
    if exact:
        raise ConfigError(
            "--compile has no effect beside --exact, whose passes are not compiled; leave out --compile or --exact",
            "compile",
            "exact",
        )
    if device.type != "cuda":
        fault = f"--compile is for CUDA, but the device is {device}; leave --compile out, or give --device cuda"
        raise ConfigError(fault, "compile", "device")


def set_up(device: torch.device, dtype: torch.dtype) -> None:
    """Chooses torch's kernels for this device and dtype, for the whole process; called before models are loaded.

    cuDNN's attention is off unless the user sets the environment variable named by `CUDNN_RANK`. For every number of
    rows and KV cache slots, cuDNN makes a plan, which takes milliseconds, and there are open reports that its results
    under a mask are wrong. Matrix products of float16 and bfloat16 tensors are summed in float32. Products of float32
    tensors are computed in float32, also where NVIDIA's containers switch TF32 on (TORCH_ALLOW_TF32_CUBLAS_OVERRIDE).

    On a CPU, if query heads share keys and values, modules of transformers pass the shared keys and values to torch
    without copies. By default, the modules would copy all keys and values for each query head in every pass, which
    after long texts takes longer than the rest of the pass.
    """
    if _GROUPED_BY_USER is None:
        if device.type == "cpu" and fuses_grouped_heads():
            os.environ[GROUPED] = "1"
        else:
            os.environ.pop(GROUPED, None)
    if device.type != "cuda":
        return
    if CUDNN_RANK not in os.environ:
        torch.backends.cuda.enable_cudnn_sdp(enabled=False)
    make_current(device)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    products = torch.backends.cuda.matmul
    if dtype is torch.float16:
        products.allow_fp16_reduced_precision_reduction = False
    if dtype is torch.bfloat16:
        products.allow_bf16_reduced_precision_reduction = False


def make_current(device: torch.device) -> None:
    """Makes the device current in the calling thread. Each thread that decodes must call this, since Triton launches
    every kernel on the thread's current device, wherever the operands are.
    """
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)


def require_working(device: torch.device) -> None:
    """Raises LostDeviceError after a sticky error of CUDA, such as an illegal memory access, after which every call of
    this process fails.
    """
    if device.type != "cuda":
        return
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        raise LostDeviceError(
            f"{device} has failed, and this process cannot use it any more: {first_line(error)}; start again with "
            "--no-kernels, and if it fails again, run dynatui doctor"
        ) from error


@functools.cache
def fuses_grouped_heads() -> bool:
    """Whether torch's fused attention on a CPU accepts a mask if query heads share keys; older releases do not."""
    queries, keys = torch.zeros(1, 2, 2, 8), torch.zeros(1, 1, 2, 8)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), warnings.catch_warnings(action="ignore"):
        try:
            scaled_dot_product_attention(queries, keys, keys, torch.zeros(1, 1, 2, 2), enable_gqa=True)
        except RuntimeError:
            return False
    return True


@contextmanager
def without_gradients() -> Iterator[None]:
    """Disables gradients, but without inference mode: torch before 2.11 keeps the random-number tensors of the first
    capture, and if that capture was in inference mode, every later capture without it fails (pytorch #166792).
    """
    with torch.inference_mode(mode=False), torch.no_grad():
        yield


def cpu_computes_bf16() -> bool:
    """Whether this CPU has instructions for bfloat16 products; False if unknown."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return False
    flags = next((line for line in cpuinfo.read_text().splitlines() if line.startswith(("flags", "Features"))), "")
    return not NATIVE_BF16.isdisjoint(flags.split())


class Stopwatch:
    """A clock that waits for the device to finish its work before each reading."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._left_out_s = 0.0

    def leave_out(self, seconds: float) -> None:
        """Excludes the last `seconds` from all later readings."""
        self._left_out_s += seconds

    def now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter() - self._left_out_s


class Mark:
    """A mark in the device's stream, which records when the device reaches it (a CUDA event)."""

    def __init__(self, device: torch.device) -> None:
        self.host_s = time.perf_counter()
        """Time at which the mark was queued; on a CPU, the mark is reached at this time."""
        self.event: Any = None
        if device.type == "cuda":
            self.event = torch.cuda.Event(enable_timing=True)
            self.event.record(torch.cuda.current_stream(device))

    def wait(self) -> None:
        if self.event is not None:
            self.event.synchronize()

    def seconds_since(self, earlier: "Mark") -> float:
        """Time between two marks, both of which the device must have reached."""
        if self.event is None:
            return self.host_s - earlier.host_s
        milliseconds: float = earlier.event.elapsed_time(self.event)
        return milliseconds / 1000


class Mailbox:
    """Numbers that are copied from the device to the host: receiving waits for the copy, sending does not."""

    def __init__(self, device: torch.device, size: int) -> None:
        self._device = device
        self._host = torch.zeros(size, dtype=torch.float64, pin_memory=device.type == "cuda")

    def send(self, numbers: Float[Tensor, "R"]) -> Mark:
        """Returns a mark at the end of the copy."""
        self._host.copy_(numbers, non_blocking=True)
        return Mark(self._device)

    def receive(self, arrival: Mark) -> NDArray[np.float64]:
        """The array is valid until the next `send`."""
        arrival.wait()
        numbers: NDArray[np.float64] = self._host.numpy()
        return numbers


class Outbox:
    """Integers that are copied from the host to the device. Sending does not wait: before the next `send`, the host
    must have waited for work that was queued after the previous `send`.
    """

    def __init__(self, device: torch.device, *shape: int) -> None:
        self._host = torch.zeros(shape, dtype=torch.int64, pin_memory=device.type == "cuda")

    def send(self, numbers: NDArray[np.int64], place: Int[Tensor, "..."]) -> None:
        """Queues a copy to a tensor on the device."""
        self._host.numpy()[:] = numbers
        place.copy_(self._host, non_blocking=True)


class Graphs:
    """Captures work on tensors with fixed addresses as CUDA graphs; without CUDA, the work itself is repeated."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = None
        self._pool: Any = None
        """Memory pool of all graphs, which never run at the same time and leave no results in the pool."""

    def capture(self, work: Callable[[], None], undo: Callable[[], None]) -> Callable[[], None]:
        """Returns a function that repeats `work`, which must copy no numbers to the host. `work` runs `WARM_UPS` times
        before it is captured; `undo` restores the state after each of these runs.
        """
        if self._device.type != "cuda":
            return work
        # If the capture fails, torch leaves the capture's stream as this thread's current stream. The context `stream`
        # restores the thread's former stream.
        stream = torch.cuda.stream(torch.cuda.current_stream(self._device))
        with without_gradients(), torch.cuda.device(self._device), stream:
            if self._stream is None:
                self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UPS):
                    work()
                    undo()
            torch.cuda.current_stream().wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            # With this mode, other threads, such as the screen's thread, may use the device during the capture.
            mode = {"pool": self._pool, "stream": self._stream, "capture_error_mode": "thread_local"}
            with _without_collector(), torch.cuda.graph(graph, **mode):
                work()
        replay: Callable[[], None] = graph.replay
        return replay


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disables garbage collection: it may free an old CUDA graph, which CUDA forbids in a capture (pytorch #161037)."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def device_count() -> int:
    return torch.cuda.device_count()


def has_graphs(device: torch.device) -> bool:
    return device.type == "cuda"


def has_room(device: torch.device, needed_bytes: int) -> bool:
    """Whether an accelerator has this much free memory once torch's cache is freed; True for a CPU."""
    free = free_bytes(device) if device.type == "cuda" else None
    return free is None or free >= needed_bytes


def free_bytes(device: torch.device) -> int | None:
    """Free memory in bytes; on an accelerator, torch's cache is freed first. None if unknown."""
    if device.type != "cuda":
        free, _ = host_memory() or (None, 0)
        return free
    torch.cuda.empty_cache()
    free_on_device: int = torch.cuda.mem_get_info(device)[0]
    return free_on_device


def memory_is_full(error: Exception) -> bool:
    """Whether an error means full memory. Its message is tested too, since torch has no error class for a full host."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


@dataclass(frozen=True)
class Multiprocessors:
    """A GPU's multiprocessors, to which the programs of a kernel are distributed."""

    count: int
    generation: int
    """Major number of the compute capability: 8 is Ampere, `HOPPER` Hopper."""


def multiprocessors_of(device: torch.device) -> Multiprocessors:
    """A CPU counts as one multiprocessor of generation 0."""
    if device.type != "cuda":
        return Multiprocessors(1, 0)
    properties = torch.cuda.get_device_properties(device)
    return Multiprocessors(properties.multi_processor_count, properties.major)


def device_name(device: torch.device) -> str | None:
    """Name of a GPU; None for a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None


def peak_bytes(device: torch.device) -> int:
    """Peak memory so far: of the device on CUDA, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def release_memory(device: torch.device) -> None:
    """Frees unused memory on CUDA, and restarts the measurement of peak memory."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
    restart_peak(device)


def restart_peak(device: torch.device) -> None:
    """On CUDA, restarts the measurement of peak memory from the memory that is in use now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


class ComputingClock:
    """A clock that leaves out the time in which this thread waited for a processor."""

    def __init__(self, device: torch.device) -> None:
        self._clock = Stopwatch(device)

    def now(self) -> float:
        """Seconds since a fixed moment, read after the device has finished its work, without waits for a processor."""
        waited = waited_here_s()
        while True:
            before, now = waited, self._clock.now()
            waited = waited_here_s()
            # If the thread has waited since the previous reading, it is unknown whether `now` includes this wait.
            if waited == before:
                return now - waited
