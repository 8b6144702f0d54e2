"""Machine that runs a measurement: versions, processor, load, memory bandwidth, peak memory, and costs of passes."""

import ctypes
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import msgspec
import torch
import transformers

from decoder.draft.tree_size.cost_model import Costs
from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.forward.language_model import LanguageModel
from decoder.models.pair import Pair
from decoder.run.expected import read_weights
from decoder.system.device import ComputingClock, Stopwatch, device_name, peak_bytes, release_memory, restart_peak
from decoder.version import VERSION

COPIED_BYTES = 1 << 30
COPIES = 10
SERIES = 5


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    system: str
    processor: str
    cores: int
    threads: int
    """Number of threads that torch uses."""
    accelerator: str | None
    versions: dict[str, str]
    load_before: float | None
    """Load average over the minute before the measurement; far above 0 if other processes were running."""
    copy_bytes_per_s: float | None
    """Bytes read and written per second by a copy within the accelerator's memory; None on a CPU."""


def examined(device: torch.device) -> Machine:
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        accelerator=device_name(device),
        versions={
            "dynatui": VERSION,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
        },
        load_before=load(),
        copy_bytes_per_s=copy_bandwidth(device) if device.type == "cuda" else None,
    )


def utc_now() -> str:
    """Current time in UTC, as ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def unlike(one: Machine, other: Machine) -> list[str]:
    """Differences that make the times of two machines incomparable, in words such as "cores 2 there, 4 here".

    Thread counts are not compared, since they are chosen for each text; load averages are not compared either.
    """
    first, second = (
        {"processor": each.processor, "cores": each.cores, "accelerator": each.accelerator}
        | {name: each.versions.get(name) for name in ("torch", "transformers")}
        for each in (one, other)
    )
    return [f"{name} {was} there, {second[name]} here" for name, was in first.items() if was != second[name]]


def source_commit() -> str | None:
    """Commit of the running source tree, with "-dirty" if files differ from the commit; None outside a git checkout."""
    root = Path(__file__).parents[2]
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None
    named = [git, "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    described = subprocess.run(named, capture_output=True, text=True, check=False)  # noqa: S603 - no user input
    return described.stdout.strip() or None


def load() -> float | None:
    """Load average over the last minute; None if the system does not report it."""
    with suppress(OSError, AttributeError):
        return os.getloadavg()[0]
    return None


def copy_bandwidth(device: torch.device, size: int = COPIED_BYTES) -> float:
    """Bytes read and written per second by copies of a tensor of `size` bytes; median over `SERIES` series."""
    clock = Stopwatch(device)
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    times = []
    for _ in range(SERIES):
        start = clock.now()
        for _ in range(COPIES):  # copies run back to back, so that launch and synchronisation hardly add time
            target.copy_(source)
        times.append(clock.now() - start)
    return 2 * size * COPIES / median(times)


def read_bytes(model: LanguageModel) -> int:
    """Bytes of weights that one forward pass reads; an embedding matrix counts only if it is also the output head."""
    module = model.hf.skeleton
    weights = [weight for _, weight in read_weights(module)]
    # In some modules, quantised matrices are buffers and not parameters.
    weights += module.buffers() if model.hf.quantised else []
    return sum(weight.numel() * weight.element_size() for weight in weights)


@contextmanager
def peak_during(device: torch.device) -> Iterator[Callable[[], int]]:
    """Yields a function that returns the peak memory since the start of the `with` block: of the device on CUDA, of the
    process on a CPU.
    """
    release_memory(device)
    begin_peak(device)
    yield lambda: peak_bytes(device)


def begin_peak(device: torch.device) -> None:
    """Resets the peak memory to the memory in use now."""
    restart_peak(device)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # returns freed memory to the system, so that it does not count as used
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # makes Linux reset the peak


def _processor() -> str:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return platform.processor() or platform.machine()


COST_SERIES = 4
"""Number of repeated measurements, each of up to two seconds. Callers use the lowest costs of all measurements, since
disturbances only add time.
"""


def repeated_costs(pair: Pair, tokens: int) -> list[Costs]:
    """Costs of both models' passes after about `tokens` tokens of text, measured `COST_SERIES` times."""
    clock = ComputingClock(pair.target.device)
    return [measure_costs(pair, tokens, clock) for _ in range(COST_SERIES)]
