"""What was measured on: versions, processor, load, how fast memory is, and how much of it a run takes."""

import ctypes
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

import msgspec
import torch
import transformers

from decoder.device import Stopwatch, device_name, peak_bytes, release_memory, restart_peak
from decoder.forward.language_model import LanguageModel
from decoder.version import VERSION
from decoder.waiting import waited_here_s

COPIED_BYTES = 1 << 30
COPIES = 10
SERIES = 5


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where and with what."""

    system: str
    processor: str
    cores: int
    threads: int
    """That torch computes with."""
    accelerator: str | None
    versions: dict[str, str]
    load_before: float | None
    """Processes that ran or waited in the minute before: far above 0, others disturbed the measurement."""
    copy_bytes_per_s: float | None
    """Bytes read and written a second in a copy within the accelerator's memory."""


def examined(device: torch.device) -> Machine:
    """This machine, now."""
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


def unlike(one: Machine, other: Machine) -> list[str]:
    """What makes times of two machines incomparable, in words: "cores 2, here 4".

    Threads, which are chosen anew for every text, and loads do not.
    """
    first, second = (
        {"processor": each.processor, "cores": each.cores, "accelerator": each.accelerator}
        | {name: each.versions.get(name) for name in ("torch", "transformers")}
        for each in (one, other)
    )
    return [f"{name} {was}, here {second[name]}" for name, was in first.items() if was != second[name]]


def source_commit() -> str | None:
    """The commit of the source tree that this runs from, with -dirty where it was changed since; None elsewhere."""
    root = Path(__file__).parents[2]
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None
    named = [git, "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    told = subprocess.run(named, capture_output=True, text=True, check=False)  # noqa: S603 - no word is a user's
    return told.stdout.strip() or None


def load() -> float | None:
    """Processes that ran or waited, on average over the last minute; None where the system does not say."""
    with suppress(OSError, AttributeError):
        return os.getloadavg()[0]
    return None


class ComputingClock:
    """Seconds without those that this thread has waited for a processor: on a busy machine, the time of its work."""

    def __init__(self, device: torch.device) -> None:
        self._clock = Stopwatch(device)

    def now(self) -> float:
        """Seconds since some moment, when the device has done its work."""
        waited = waited_here_s()
        while True:
            before, now = waited, self._clock.now()
            waited = waited_here_s()
            if waited == before:  # else it waited between the two readings, and one knows of it and the other does not
                return now - waited


def copy_bandwidth(device: torch.device, size: int = COPIED_BYTES) -> float:
    """Bytes read and written a second while a tensor of `size` bytes is copied; the median of some series of copies."""
    clock = Stopwatch(device)
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    times = []
    for _ in range(SERIES):
        start = clock.now()
        for _ in range(COPIES):  # one after the other, so that no start and no wait counts much
            target.copy_(source)
        times.append(clock.now() - start)
    return 2 * size * COPIES / median(times)


def read_bytes(model: LanguageModel) -> int:
    """Bytes of weights that one forward pass reads: all but the input embedding, unless that is the head as well."""
    module = model.hf.skeleton
    total: int = sum(weight.numel() * weight.element_size() for weight in module.parameters())
    embedding, head = module.get_input_embeddings().weight, module.get_output_embeddings()
    tied = head is not None and head.weight is embedding
    unread: int = 0 if tied else embedding.numel() * embedding.element_size()
    return total - unread


@contextmanager
def peak_during(device: torch.device) -> Iterator[Callable[[], int]]:
    """Most memory in use from here on: of the device's on CUDA, of the process on a CPU, both models included."""
    release_memory(device)
    begin_peak(device)
    yield lambda: peak_bytes(device)


def begin_peak(device: torch.device) -> None:
    """The peak is from here on that of what is in use now and later."""
    restart_peak(device)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what is free but kept by glibc would count as in use
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Linux then begins a new peak


def _processor() -> str:
    """The processor's name, where the system tells it."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return platform.processor() or platform.machine()
