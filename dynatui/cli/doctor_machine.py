"""The doctor's checks that concern no models, and the result type of all checks. Checks import torch when they run."""

import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from decoder.errors import DecoderError, shortened
from decoder.events import arithmetic
from decoder.models.gguf.file import is_gguf
from decoder.models.names import LOOKUP, MTP
from decoder.system.host_memory import host_memory
from decoder.system.openmp import waiting_words
from dynatui.gpu import Gpu, gpus
from dynatui.number_format import size
from dynatui.record.recording import recordings_folder
from dynatui.session import Models

Verdict: TypeAlias = Literal["ok", "note", "problem"]
"""problem: dynatui cannot run with these options; note: dynatui can run, but the finding matters to users."""
_SMALL = (80, 24)
_LITTLE_SPACE = 100 * 2**20
_NATIVE_FP16 = frozenset({"avx512_fp16", "amx_fp16", "asimdhp"})
_BF16_CAPABILITY = (8, 0)
_PLAIN = "or give --no-kernels, which uses plain functions"
_COMPILERS = ("gcc", "clang")


class CheckResult(NamedTuple):
    """One result of a check, with a remedy if one is needed."""

    verdict: Verdict
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class DoctorInput:
    models: Models
    log: Path | None
    settings: Callable[[], str]
    """Returns one line about the sources of the settings; raises DecoderError if a setting is invalid."""
    strange_variables: Sequence[str] = ()
    forbidden: bool = False
    """Whether the user has forbidden downloads."""


def terminal(_case: DoctorInput) -> Iterator[CheckResult]:
    """Size, colours and encoding of the terminal, and whether the terminal can show the screen."""
    names = [name for name in ("stdin", "stdout", "stderr") if not is_terminal(name)]
    if names:
        yield CheckResult("note", f"dynatui runs without a screen here: no terminal is connected to {', '.join(names)}")
    kind = os.environ.get("TERM", "")
    if kind in ("", "dumb"):
        lacking_name = f"TERM is {kind or 'not set'}, so there is no screen"
        yield CheckResult("note", lacking_name, "set TERM to the terminal's name")
    yield from _size()
    variables = f"TERM {kind or '-'}, COLORTERM {os.environ.get('COLORTERM') or '-'}"
    colours = f"{_colours(kind)} colours ({variables})"
    yield CheckResult("ok", "no colours, because NO_COLOR is set" if os.environ.get("NO_COLOR") else colours)
    encoding = sys.stdout.encoding if sys.stdout else "unknown"
    text, remedy = f"the encoding of the output is {encoding}", "if characters are missing, give --symbols ascii"
    is_utf8 = encoding.lower().replace("-", "") == "utf8"
    yield CheckResult("ok", text) if is_utf8 else CheckResult("note", text, remedy)
    if "SSH_CONNECTION" in os.environ:
        yield CheckResult("ok", "over SSH: 5 frames a second unless --fps is given; ssh -C compresses the frames well")
    if "TMUX" in os.environ or "STY" in os.environ:
        yield CheckResult("ok", "inside tmux or screen: the run survives a lost connection")


def is_terminal(name: str) -> bool:
    stream = getattr(sys, name)
    return stream is not None and stream.isatty()


def _size() -> Iterator[CheckResult]:
    for descriptor in (1, 2, 0):
        with suppress(OSError):
            width, height = os.get_terminal_size(descriptor)
            text, remedy = f"{width}x{height} characters", f"panels need at least {_SMALL[0]}x{_SMALL[1]} characters"
            is_small = width < _SMALL[0] or height < _SMALL[1]
            yield CheckResult("note", text, remedy) if is_small else CheckResult("ok", text)
            return


def _colours(kind: str) -> str:
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit") or kind.endswith("direct"):
        return "16 million"
    return "256" if "256color" in kind else "16"


def versions(_case: DoctorInput) -> Iterator[CheckResult]:
    from importlib import metadata  # noqa: PLC0415 - needed only here

    from packaging.requirements import Requirement  # noqa: PLC0415 - needed only here

    installed = [f"python {platform.python_version()}", f"dynatui {metadata.version('dynatui')}"]
    for line in metadata.requires("dynatui") or []:
        need = Requirement(line)
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        remedy = f"pip install '{need.name}{need.specifier}'"
        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            yield CheckResult("problem", f"{need.name} is not installed", remedy)
            continue
        installed.append(f"{need.name} {version}")
        if not need.specifier.contains(version, prereleases=True):
            yield CheckResult("problem", f"{need.name} is {version}, but dynatui needs {need.specifier}", remedy)
    yield CheckResult("ok", ", ".join(installed))


def devices(case: DoctorInput) -> Iterator[CheckResult]:
    """The device that would be used, its memory, and the dtypes that it supports."""
    from decoder.system.device import (  # noqa: PLC0415 - imports torch
        choose_device,
        choose_draft_dtype,
        choose_dtype,
        cpu_computes_bf16,
        require_compilable,
    )

    pair, seen, native = case.models, gpus(), {"bfloat16": cpu_computes_bf16(), "float16": cpu_has_fp16()}
    free, total = host_memory() or (None, 0)
    memory = "" if free is None else f", {size(free)} of {size(total)} memory free"
    yield CheckResult("ok", f"cpu: {os.cpu_count()} cores{memory}, {_dtypes(**native)}")
    yield _cpu_passes()
    yield CheckResult("ok", waiting_words())
    for number, gpu in enumerate(seen):
        yield CheckResult("ok", f"gpu {number}: {_described(gpu)}")
    best = choose_device("auto")
    if seen and best.type == "cpu":
        yield CheckResult("note", "torch finds no GPU, but the driver finds one", "install a build of torch with CUDA")
    named = [name for name in (pair.target, pair.draft) if name and name not in (LOOKUP, MTP)]
    if named and all(map(is_gguf, named)):
        layers = "" if pair.gpu_layers is None else f", with {pair.gpu_layers} layers on a GPU"
        yield CheckResult("ok", f"llama.cpp would run the models{layers}")
        return
    device = choose_device(pair.device)
    chosen = choose_dtype(pair.dtype, device, None)
    dtype = str(chosen).removeprefix("torch.")
    if pair.dtype == "auto":
        dtype = "the checkpoint's dtype" if device.type == "cuda" else "the dtype named below"
    draft = choose_draft_dtype(pair.draft_dtype, chosen)
    if pair.exact:
        from decoder.forward.batch_invariant.pass_sizes import refuse_float64  # noqa: PLC0415 - imports torch

        for each in (chosen, draft):
            refuse_float64(each)
    if pair.compiled:
        require_compilable(device, exact=pair.exact)
    ways = ", batch-invariant" * pair.exact + ", compiled where that is faster" * pair.compiled
    own = "" if pair.draft_dtype == "auto" else str(draft).removeprefix("torch.")
    yield CheckResult("ok", f"models would run on {device} in {arithmetic(dtype, own)}{ways}")
    for flag, name in (("--dtype", dtype), ("--draft-dtype", own)):
        if device.type == "cpu" and not native.get(name, True):
            yield CheckResult("note", f"this CPU does not compute in {name}, so {name} is slow", f"give {flag} float32")


def _cpu_passes() -> CheckResult:
    from decoder.forward.compiled.library import ADVICE, machine, missing  # noqa: PLC0415 - imports torch

    if why := missing():
        return CheckResult("note", f"cpu: torch computes all passes, which is slower; {why}", ADVICE)
    families = "GPT-NeoX, Llama, Mistral, Qwen2 and Qwen3 models"
    return CheckResult("ok", f"cpu: compiled passes ({machine()}) compute {families}")


def cpu_has_fp16() -> bool:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
        return not _NATIVE_FP16.isdisjoint(flags.split())
    return False


def _dtypes(**native: bool) -> str:
    return ", ".join(f"{name} {'native' if has else 'emulated'}" for name, has in native.items())


def _described(gpu: Gpu) -> str:
    memory = ""
    if gpu.total_bytes and gpu.free_bytes is not None:
        memory = f", {size(gpu.free_bytes)} of {size(gpu.total_bytes)} memory free"
    dtypes = f", {_dtypes(bfloat16=gpu.capability >= _BF16_CAPABILITY, float16=True)}" if gpu.capability else ""
    return f"{gpu.name}{memory}{dtypes}{', counts its energy' if gpu.counts_energy else ''}"


def kernels(case: DoctorInput) -> Iterator[CheckResult]:
    """Whether Triton can build kernels, if the device uses kernels; without kernels, rounds use PyTorch functions."""
    from decoder.system.device import choose_device, has_graphs  # noqa: PLC0415 - imports torch

    if not case.models.kernels or case.models.exact or not has_graphs(choose_device(case.models.device)):
        return
    if find_spec("triton") is None:
        yield CheckResult("note", "Triton is not installed", f"pip install triton, {_PLAIN}")
        return
    scheme = sysconfig.get_default_scheme()
    # The scheme "posix_local" of Debian's Python names /usr/local, where Debian installs no headers.
    paths = sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)
    works = CheckResult("ok", f"Triton can build kernels, and keeps them in {_cache_folder(os.environ)}")
    yield from list(lacking(os.environ, Path(paths["include"]))) or [works]


def lacking(environment: Mapping[str, str], headers: Path) -> Iterator[CheckResult]:
    """A note for each requirement of `triton.runtime.build` that is not met; `headers` is the folder of Python.h."""
    named, path = environment.get("CC"), environment.get("PATH")
    if not any(shutil.which(name, path=path) for name in ((named,) if named is not None else _COMPILERS)):
        sought = f"CC names {shortened(named)}, which is not there" if named is not None else "there is no gcc or clang"
        remedy = f"install gcc, for example with apt install gcc libc6-dev, or name a compiler with CC, {_PLAIN}"
        yield CheckResult("note", f"Triton needs a C compiler, but {sought}", remedy)
    if not (headers / "Python.h").is_file():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        remedy = f"install them, for example with apt install python{version}-dev, {_PLAIN}"
        yield CheckResult("note", f"Triton needs Python's headers, but {headers} has no Python.h", remedy)
    folder = _cache_folder(environment)
    if not _can_be_written(folder):
        remedy = f"set TRITON_CACHE_DIR to a folder that can be written, {_PLAIN}"
        yield CheckResult("note", f"Triton needs a folder for its cache, but {folder} cannot be written", remedy)


def _cache_folder(environment: Mapping[str, str]) -> Path:
    if named := environment.get("TRITON_CACHE_DIR"):
        return Path(named)
    return Path(environment.get("TRITON_HOME") or environment.get("HOME") or Path.home()) / ".triton" / "cache"


def _can_be_written(folder: Path) -> bool:
    """Whether files could be created in the folder, which may not exist yet; creates nothing."""
    nearest = next((each for each in (folder, *folder.absolute().parents) if each.exists()), Path("/"))
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def settings(case: DoctorInput) -> Iterator[CheckResult]:
    try:
        yield CheckResult("ok", case.settings())
    finally:
        for name in case.strange_variables:
            remedy = "dynatui config --print-default lists all settings"
            yield CheckResult("note", f"the variable {name} sets no option", remedy)


def log(case: DoctorInput) -> Iterator[CheckResult]:
    from dynatui.terminal.guard import log_path  # noqa: PLC0415 - imports textual

    path = log_path(case.log)
    nowhere = CheckResult("note", "no log can be written in the user's log folder", "name a file with --log-file")
    kept = CheckResult("ok", f"errors, and messages of libraries, go to {path}")
    yield nowhere if str(path) == os.devnull else kept


def recordings(_case: DoctorInput) -> Iterator[CheckResult]:
    """The folder for recordings that are started by a key, and its free space."""
    try:
        folder = recordings_folder()
    except DecoderError as error:
        yield CheckResult("note", f"no recording can be started by a key: {error}")
        return
    free = shutil.disk_usage(folder).free
    text = f"recordings started by a key go to {folder}, where {size(free)} are free"
    yield CheckResult("note" if free < _LITTLE_SPACE else "ok", text)
