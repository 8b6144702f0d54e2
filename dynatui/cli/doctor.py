"""`dynatui doctor`: a list of checks; an error in a check is reported as a finding, and nothing is downloaded."""

import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import click
import msgspec

from decoder.errors import DecoderError, ModelError, shortened
from decoder.events import arithmetic
from decoder.models.gguf_file import is_gguf
from decoder.models.names import LOOKUP, MTP
from decoder.system.host_memory import host_memory
from decoder.system.openmp import waiting_words
from dynatui.clean import clean_line
from dynatui.cli import config, options, request, settings
from dynatui.cli.finding import Finding, note, ok, problem
from dynatui.cli.parameters import CONTEXT, Declared, switch
from dynatui.gpu import Gpu, gpus
from dynatui.number_format import counted, size
from dynatui.record.recording import recordings_folder
from dynatui.session import Models
from dynatui.terminal import streams

_OFFLINE = "HF_HUB_OFFLINE"
_SMALL = (80, 24)
_LITTLE_SPACE = 100 * 2**20
_NATIVE_FP16 = frozenset({"avx512_fp16", "amx_fp16", "asimdhp"})
_BF16_CAPABILITY = (8, 0)
_PLAIN = "or give --no-kernels, which uses plain functions"


Check: TypeAlias = Callable[[], Iterable[Finding]]
Report: TypeAlias = Mapping[str, Sequence[Finding]]
"""Findings by topic."""

PARAMETERS: Declared = (
    CONTEXT,
    request.MODELS,
    options.LOG_FILE,
    switch("--json", "Print one JSON object instead of lines of text.", name="as_json"),
)


def doctor(context: click.Context, *, models: Models, log: Path | None, as_json: bool) -> int:
    """Examine terminal, packages, devices, models, settings and files; nothing is downloaded."""
    given: dict[str, Any] = {**vars(models), "log": log}
    with suppress(DecoderError):  # the check of settings reports invalid settings
        given |= settings.fill(context, settings.applied(context))
    log = given.pop("log")
    with streams.results_only():
        report = examine(checks(Models(**given), log, context.find_root()))
    out, _ = streams.for_printing()
    streams.show(as_object(report) if as_json else page(report), out)
    return 0 if works(report) else ModelError.exit_code


def checks(pair: Models, log: Path | None, live: Any) -> dict[str, Check]:
    """Checks by topic; `live` is the context of the root command. `HF_HUB_OFFLINE` forbids downloads in all checks."""
    forbidden = bool(os.environ.get(_OFFLINE))
    return {
        "terminal": terminal,
        "versions": versions,
        "devices": lambda: devices(pair),
        "kernels": lambda: kernels(pair),
        "models": lambda: _of_models().models(pair, forbidden=forbidden),
        "rounds": lambda: _of_models().rounds(pair),
        "times": lambda: _of_models().theoretical_times(pair),
        "settings": lambda: settings_in_force(live),
        "log": lambda: log_file(log),
        "recordings": recordings,
    }


def _of_models() -> ModuleType:
    """Imports the module of the checks that need torch, after setting HF_HUB_OFFLINE, which this import reads."""
    os.environ[_OFFLINE] = "1"
    from dynatui.cli import doctor_models  # noqa: PLC0415 - imports torch

    return doctor_models


def examine(checks: Mapping[str, Check]) -> Report:
    return {topic: list(_alone(check)) for topic, check in checks.items()}


def works(report: Report) -> bool:
    return not any(finding.verdict == "problem" for findings in report.values() for finding in findings)


def page(report: Report) -> str:
    """The report as text, with the verdict in the last line."""
    lines = []
    for topic, findings in report.items():
        lines += [topic] * bool(findings)
        lines += [f"  {each.verdict:<8} {'; '.join(filter(None, each[1:]))}" for each in findings]
    problems = sum(finding.verdict == "problem" for findings in report.values() for finding in findings)
    verdict = f"{counted(problems, 'problem')}, see above" if problems else "everything that is needed works"
    return "".join(f"{clean_line(line)}\n" for line in [*lines, f"verdict: {verdict}"])


def as_object(report: Report) -> str:
    findings = [{"topic": topic, **each._asdict()} for topic, findings in report.items() for each in findings]
    return f"{msgspec.json.encode({'ok': works(report), 'findings': findings}).decode()}\n"


def _alone(check: Check) -> Iterator[Finding]:
    try:
        yield from check()
    except DecoderError as error:
        yield problem(settings.with_places(error))
    except Exception as error:  # noqa: BLE001 - any fault of the installation is a finding
        why = f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no reason given'])[0]}"
        yield problem(f"this topic could not be examined: {why}", "reinstall dynatui")


def terminal() -> Iterator[Finding]:
    """Size, colours and encoding of the terminal, and whether the terminal can show the screen."""
    if names := [name for name in ("stdin", "stdout", "stderr") if not is_terminal(name)]:
        yield note(f"dynatui runs without a screen here: no terminal is connected to {', '.join(names)}")
    kind, depth = os.environ.get("TERM", ""), os.environ.get("COLORTERM", "")
    if kind in ("", "dumb"):
        yield note(f"TERM is {kind or 'not set'}, so there is no screen", "set TERM to the terminal's name")
    with suppress(OSError):
        width, height = os.get_terminal_size()
        small = width < _SMALL[0] or height < _SMALL[1]
        remedy = f"panels need at least {_SMALL[0]}x{_SMALL[1]} characters" if small else ""
        yield Finding("note" if small else "ok", f"{width}x{height} characters", remedy)
    many = depth.lower() in ("truecolor", "24bit") or kind.endswith("direct")
    colours = "16 million" if many else "256" if "256color" in kind else "16"
    shown = f"{colours} colours (TERM {kind or '-'}, COLORTERM {depth or '-'})"
    yield ok("no colours, because NO_COLOR is set" if os.environ.get("NO_COLOR") else shown)
    encoding = sys.stdout.encoding if sys.stdout else "unknown"
    utf8 = encoding.lower().replace("-", "") == "utf8"
    remedy = "" if utf8 else "if characters are missing, give --symbols ascii"
    yield Finding("ok" if utf8 else "note", f"the encoding of the output is {encoding}", remedy)
    if "SSH_CONNECTION" in os.environ:
        yield ok("over SSH: 5 frames a second unless --fps is given; ssh -C compresses the frames well")
    if "TMUX" in os.environ or "STY" in os.environ:
        yield ok("inside tmux or screen: the run survives a lost connection")


def is_terminal(name: str) -> bool:
    stream = getattr(sys, name)
    return stream is not None and stream.isatty()


def versions() -> Iterator[Finding]:
    from packaging.requirements import Requirement  # noqa: PLC0415 - needed only here

    installed = [f"python {platform.python_version()}", f"dynatui {metadata.version('dynatui')}"]
    for need in map(Requirement, metadata.requires("dynatui") or []):
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        remedy = f"pip install '{need.name}{need.specifier}'"
        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            yield problem(f"{need.name} is not installed", remedy)
            continue
        installed.append(f"{need.name} {version}")
        if not need.specifier.contains(version, prereleases=True):
            yield problem(f"{need.name} is {version}, but dynatui needs {need.specifier}", remedy)
    yield ok(", ".join(installed))


def devices(pair: Models) -> Iterator[Finding]:
    """The device that would be used, its memory, and the dtypes that it supports."""
    from decoder.forward.compiled import library  # noqa: PLC0415 - imports torch
    from decoder.system import device as system  # noqa: PLC0415

    native = {"bfloat16": system.cpu_computes_bf16(), "float16": cpu_has_fp16()}
    free, total = host_memory() or (None, 0)
    yield ok(f"cpu: {os.cpu_count()} cores{_memory(free, total)}, {_dtypes(**native)}")
    if why := library.missing():
        yield note(f"cpu: torch computes all passes, which is slower; {why}", library.ADVICE)
    else:
        families = "GPT-NeoX, Llama, Mistral, Qwen2 and Qwen3 models"
        yield ok(f"cpu: compiled passes ({library.machine()}) compute {families}")
    yield ok(waiting_words())
    seen = gpus()
    for number, gpu in enumerate(seen):
        yield ok(f"gpu {number}: {_described(gpu)}")
    if seen and system.choose_device("auto").type == "cpu":
        yield note("torch finds no GPU, but the driver finds one", "install a build of torch with CUDA")
    yield from _placed(pair, native)


def _placed(pair: Models, native: Mapping[str, bool]) -> Iterator[Finding]:
    """Device and dtypes of the models."""
    from decoder.forward.batch_invariant import refuse_float64  # noqa: PLC0415 - imports torch
    from decoder.system import device as system  # noqa: PLC0415

    named = [name for name in (pair.target, pair.draft) if name and name not in (LOOKUP, MTP)]
    if named and all(map(is_gguf, named)):
        layers = "" if pair.gpu_layers is None else f", with {pair.gpu_layers} layers on a GPU"
        yield ok(f"llama.cpp would run the models{layers}")
        return
    device = system.choose_device(pair.device)
    chosen = system.choose_dtype(pair.dtype, device, None)
    draft = system.choose_draft_dtype(pair.draft_dtype, chosen)
    if pair.exact:
        for each in (chosen, draft):
            refuse_float64(each)
    if pair.compiled:
        system.require_compilable(device, exact=pair.exact)
    dtype = str(chosen).removeprefix("torch.")
    if pair.dtype == "auto":
        dtype = "the checkpoint's dtype" if device.type == "cuda" else "the dtype named below"
    own = "" if pair.draft_dtype == "auto" else str(draft).removeprefix("torch.")
    ways = ", batch-invariant" * pair.exact + ", compiled where that is faster" * pair.compiled
    yield ok(f"models would run on {device} in {arithmetic(dtype, own)}{ways}")
    for flag, name in (("--dtype", dtype), ("--draft-dtype", own)):
        if device.type == "cpu" and not native.get(name, True):
            yield note(f"this CPU does not compute in {name}, so {name} is slow", f"give {flag} float32")


def cpu_has_fp16() -> bool:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
        return not _NATIVE_FP16.isdisjoint(flags.split())
    return False


def _dtypes(**native: bool) -> str:
    return ", ".join(f"{name} {'native' if has else 'emulated'}" for name, has in native.items())


def _memory(free: int | None, total: int | None) -> str:
    return "" if free is None or not total else f", {size(free)} of {size(total)} memory free"


def _described(gpu: Gpu) -> str:
    dtypes = f", {_dtypes(bfloat16=gpu.capability >= _BF16_CAPABILITY, float16=True)}" if gpu.capability else ""
    energy = ", counts its energy" if gpu.counts_energy else ""
    return f"{gpu.name}{_memory(gpu.free_bytes, gpu.total_bytes)}{dtypes}{energy}"


def kernels(pair: Models) -> Iterator[Finding]:
    """Whether Triton can build kernels, if the device uses kernels; without kernels, rounds use PyTorch functions."""
    from decoder.system.device import choose_device, has_graphs  # noqa: PLC0415 - imports torch

    if not pair.kernels or pair.exact or not has_graphs(choose_device(pair.device)):
        return
    if find_spec("triton") is None:
        yield note("Triton is not installed", f"pip install triton, {_PLAIN}")
        return
    scheme = sysconfig.get_default_scheme()
    # The scheme "posix_local" of Debian's Python names /usr/local, where Debian installs no headers.
    paths = sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)
    works = ok(f"Triton can build kernels, and keeps them in {_cache_folder(os.environ)}")
    yield from list(lacking(os.environ, Path(paths["include"]))) or [works]


def lacking(environment: Mapping[str, str], headers: Path) -> Iterator[Finding]:
    """A note for each requirement of `triton.runtime.build` that is not met; `headers` is the folder of Python.h."""
    named, path = environment.get("CC"), environment.get("PATH")
    if not any(shutil.which(name, path=path) for name in (("gcc", "clang") if named is None else (named,))):
        sought = "there is no gcc or clang" if named is None else f"CC names {shortened(named)}, which is not there"
        remedy = f"install gcc, for example with apt install gcc libc6-dev, or name a compiler with CC, {_PLAIN}"
        yield note(f"Triton needs a C compiler, but {sought}", remedy)
    if not (headers / "Python.h").is_file():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        remedy = f"install them, for example with apt install python{version}-dev, {_PLAIN}"
        yield note(f"Triton needs Python's headers, but {headers} has no Python.h", remedy)
    folder = _cache_folder(environment)
    nearest = next((each for each in (folder, *folder.absolute().parents) if each.exists()), Path("/"))
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):  # the folder is made when it is needed
        remedy = f"set TRITON_CACHE_DIR to a folder that can be written, {_PLAIN}"
        yield note(f"Triton needs a folder for its cache, but {folder} cannot be written", remedy)


def _cache_folder(environment: Mapping[str, str]) -> Path:
    if named := environment.get("TRITON_CACHE_DIR"):
        return Path(named)
    return Path(environment.get("TRITON_HOME") or environment.get("HOME") or Path.home()) / ".triton" / "cache"


def settings_in_force(live: Any) -> Iterator[Finding]:
    for name in settings.strange_variables(live.command):
        yield note(f"the variable {name} sets no option", "dynatui config --print-default lists all settings")
    config.in_force(live)
    places = [setting.place for setting in settings.applied(live).values()]
    by_variables = sum(place.startswith(settings.PREFIX) for place in places)
    path = settings.file_path()
    file = f"settings from {path}{'' if path.exists() else ' (does not exist)'}: {len(places) - by_variables}"
    yield ok(f"{file}; settings from environment variables: {by_variables}")


def log_file(log: Path | None) -> Iterator[Finding]:
    from dynatui.terminal.guard import log_path  # noqa: PLC0415 - imports textual

    path = log_path(log)
    if str(path) == os.devnull:
        yield note("no log can be written in the user's log folder", "name a file with --log-file")
    else:
        yield ok(f"errors, and messages of libraries, go to {path}")


def recordings() -> Iterator[Finding]:
    """The folder for recordings that are started by a key, and its free space."""
    try:
        folder = recordings_folder()
    except DecoderError as error:
        yield note(f"no recording can be started by a key: {error}")
        return
    free = shutil.disk_usage(folder).free
    text = f"recordings started by a key go to {folder}, where {size(free)} are free"
    yield Finding("note" if free < _LITTLE_SPACE else "ok", text)
