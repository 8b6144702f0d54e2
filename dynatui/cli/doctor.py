"""`dynatui doctor`: examines this machine by probes. A probe reports findings; each finding has a verdict, and a remedy
if one is needed.

Users run this command when something is broken, so the probes are independent: the failure of a probe is reported as a
finding, and all other probes still run. No probe downloads anything. Torch and the model libraries are imported inside
the probes that need them.
"""

import os
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import typer

from decoder.errors import ConfigError, DecoderError, ModelError
from decoder.events import TRANSLATED, arithmetic
from decoder.models.gguf.file import is_gguf
from decoder.models.names import LOOKUP, MTP
from decoder.system.host_memory import host_memory
from decoder.system.openmp import waiting_words
from dynatui.clean import clean_line
from dynatui.cli import config, options, request
from dynatui.cli.doctor_findings import Case, Finding, Probe, Verdict, size
from dynatui.cli.doctor_kernels import kernels
from dynatui.cli.doctor_models import gpu_layers_words, lacks_target, models, names_of, place_of
from dynatui.cli.doctor_times import times
from dynatui.cli.parameters import CONTEXT, Declared, switch
from dynatui.cli.settings import applied, fill, strange_variables, with_places
from dynatui.gpu import Gpu, gpus
from dynatui.record.recording import recordings_folder
from dynatui.session import Models
from dynatui.terminal import streams

_SMALL = (80, 24)
_LITTLE_SPACE = 100 * 2**20
_NATIVE_FP16 = frozenset({"avx512_fp16", "amx_fp16", "asimdhp"})
_BF16_CAPABILITY = (8, 0)


class Examined(msgspec.Struct, frozen=True):
    """One finding, in the form in which `--json` prints it."""

    topic: str
    verdict: Verdict
    text: str
    remedy: str


class Report(msgspec.Struct, frozen=True):
    """All findings, in the form in which `--json` prints them."""

    ok: bool
    findings: list[Examined]


PARAMETERS: Declared = (
    CONTEXT,
    request.MODELS,
    options.LOG_FILE,
    switch("--json", "Print one JSON object instead of lines of text.", name="as_json"),
)


def doctor(context: typer.Context, *, models: Models, log: Path | None, as_json: bool) -> int:
    """Examine terminal, packages, devices, models, settings and files; nothing is downloaded."""
    given: dict[str, Any] = {**vars(models), "log": log}
    with suppress(DecoderError):  # the probe of settings reports invalid settings
        given |= fill(context, applied(context))
    live = context.find_root()
    log = given.pop("log")
    case = Case(Models(**given), log, lambda: config.summary(live), strange_variables(live.command))
    with streams.results_only():
        report = examine(case, PROBES)
    out, _ = streams.for_printing()
    streams.show(f"{msgspec.json.encode(report).decode()}\n" if as_json else page(report), out)
    return 0 if report.ok else ModelError.exit_code


def examine(case: Case, probes: Mapping[str, Probe]) -> Report:
    """Runs every probe; if a probe fails, the other probes still run."""
    findings = [
        Examined(topic, finding.verdict, finding.text, finding.remedy)
        for topic, probe in probes.items()
        for finding in _alone(probe, case)
    ]
    return Report(ok=all(finding.verdict != "problem" for finding in findings), findings=findings)


def page(report: Report) -> str:
    """The report as text, with the verdict in the last line."""
    lines = []
    for topic, findings in groupby(report.findings, lambda finding: finding.topic):
        lines.append(topic)
        rows = [(finding.verdict, "; ".join(filter(None, (finding.text, finding.remedy)))) for finding in findings]
        lines += [f"  {verdict:<8} {text}" for verdict, text in rows]
    problems = sum(finding.verdict == "problem" for finding in report.findings)
    verdict = "everything that is needed works" if report.ok else f"{problems} problem{'s' * (problems > 1)}, see above"
    return "".join(f"{clean_line(line)}\n" for line in [*lines, f"verdict: {verdict}"])


def _alone(probe: Probe, case: Case) -> Iterable[Finding]:
    try:
        yield from probe(case)
    except DecoderError as error:
        yield Finding("problem", with_places(error))
    except Exception as error:  # noqa: BLE001 - any fault of the installation is a finding
        why = (str(error).strip().splitlines() or ["no reason given"])[0]
        yield Finding(
            "problem", f"this topic could not be examined: {type(error).__name__}: {why}", "reinstall dynatui"
        )


def terminal(_case: Case) -> Iterator[Finding]:
    """Whether the terminal can show the screen: reports its size, colours and encoding."""
    names = [name for name in ("stdin", "stdout", "stderr") if not _is_terminal(name)]
    if names:
        yield Finding("note", f"dynatui runs without a screen here: no terminal is connected to {', '.join(names)}")
    kind = os.environ.get("TERM", "")
    if kind in ("", "dumb"):
        yield Finding("note", f"TERM is {kind or 'not set'}, so there is no screen", "set TERM to the terminal's name")
    yield from _size()
    if os.environ.get("NO_COLOR"):
        yield Finding("ok", "no colours, because NO_COLOR is set")
    else:
        variables = f"TERM {kind or '-'}, COLORTERM {os.environ.get('COLORTERM') or '-'}"
        yield Finding("ok", f"{_colours(kind)} colours ({variables})")
    encoding = sys.stdout.encoding if sys.stdout else "unknown"
    if encoding.lower().replace("-", "") == "utf8":
        yield Finding("ok", f"the encoding of the output is {encoding}")
    else:
        yield Finding(
            "note", f"the encoding of the output is {encoding}", "if characters are missing, give --symbols ascii"
        )
    if "SSH_CONNECTION" in os.environ:
        yield Finding("ok", "over SSH: 5 frames a second unless --fps is given; ssh -C compresses the frames well")
    if "TMUX" in os.environ or "STY" in os.environ:
        yield Finding("ok", "inside tmux or screen: the run survives a lost connection")


def versions(_case: Case) -> Iterator[Finding]:
    """Reports the versions of Python and of the packages that dynatui requires."""
    from importlib import metadata  # noqa: PLC0415 - needed only by this probe

    from packaging.requirements import Requirement  # noqa: PLC0415 - needed only by this probe

    installed = [f"python {platform.python_version()}", f"dynatui {metadata.version('dynatui')}"]
    for line in metadata.requires("dynatui") or []:
        need = Requirement(line)
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        remedy = f"pip install '{need.name}{need.specifier}'"
        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            yield Finding("problem", f"{need.name} is not installed", remedy)
            continue
        installed.append(f"{need.name} {version}")
        if not need.specifier.contains(version, prereleases=True):
            yield Finding("problem", f"{need.name} is {version}, but dynatui needs {need.specifier}", remedy)
    yield Finding("ok", ", ".join(installed))


def devices(case: Case) -> Iterator[Finding]:
    """Reports the device that would be used, its memory, and the dtypes that it supports."""
    from decoder.system.device import (  # noqa: PLC0415 - imports torch
        choose_device,
        choose_draft_dtype,
        choose_dtype,
        cpu_computes_bf16,
        require_compilable,
    )

    seen = gpus()
    yield Finding("ok", f"cpu: {os.cpu_count()} cores{_memory()}, {_dtypes(cpu_computes_bf16(), _cpu_has_fp16())}")
    yield _cpu_passes()
    yield Finding("ok", waiting_words())
    for number, gpu in enumerate(seen):
        yield Finding("ok", f"gpu {number}: {_described(gpu)}")
    best = choose_device("auto")
    if seen and best.type == "cpu":
        yield Finding("note", "torch finds no GPU, but the driver finds one", "install a build of torch with CUDA")
    named = [name for name in (case.models.target, case.models.draft) if name and name not in (LOOKUP, MTP)]
    if named and all(map(is_gguf, named)):
        yield Finding("ok", f"llama.cpp would run the models{gpu_layers_words(case.models)}")
        return
    device = choose_device(case.models.device)
    chosen = choose_dtype(case.models.dtype, device, None)
    dtype = str(chosen).removeprefix("torch.")
    if case.models.dtype == "auto":
        dtype = "the checkpoint's dtype" if device.type == "cuda" else "the dtype named below"
    draft = choose_draft_dtype(case.models.draft_dtype, chosen)
    if case.models.exact:
        from decoder.forward.batch_invariant.pass_sizes import refuse_float64  # noqa: PLC0415 - imports torch

        for each in (chosen, draft):
            refuse_float64(each)
    if case.models.compiled:
        require_compilable(device, exact=case.models.exact)
    ways = [", batch-invariant"] * case.models.exact + [", compiled where that is faster"] * case.models.compiled
    own = "" if case.models.draft_dtype == "auto" else str(draft).removeprefix("torch.")
    yield Finding("ok", f"models would run on {device} in {arithmetic(dtype, own)}{''.join(ways)}")
    slow = {"bfloat16": not cpu_computes_bf16(), "float16": not _cpu_has_fp16()}
    for flag, name in (("--dtype", dtype), ("--draft-dtype", own)):
        if device.type == "cpu" and slow.get(name):
            yield Finding("note", f"this CPU does not compute in {name}, so {name} is slow", f"give {flag} float32")


def rounds(case: Case) -> Iterator[Finding]:
    """Reports whether the host or CUDA graphs drive the rounds; on a GPU, tries graphs with the embedded pair."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded
    from decoder import load_pair  # noqa: PLC0415 - imports torch
    from decoder.models import checkpoints  # noqa: PLC0415 - imports torch
    from decoder.models.compatibility import tokenizers_of  # noqa: PLC0415 - imports torch
    from decoder.models.heads import head_shape  # noqa: PLC0415
    from decoder.run import decoding_path  # noqa: PLC0415 - imports torch
    from decoder.system.device import DTYPES, choose_device, has_graphs  # noqa: PLC0415

    pair = case.models
    if lacks_target(pair):
        return
    device = choose_device(pair.device)
    if has_graphs(device) and not pair.exact:
        tried = decoding_path.decoding_path(
            load_pair(device=pair.device, dtype=pair.dtype, draft_dtype=pair.draft_dtype, kernels=pair.kernels)
        )
        if tried.name == decoding_path.HOST:
            text = f"rounds of the embedded pair are driven by the host on {device}, which is slower: {tried.reason}"
            yield Finding("note", text, "another version of torch or of the driver may help")
            return
        yield Finding("ok", f"rounds of the embedded pair are driven by {tried.name} on {device}: {tried.reason}")
    names = names_of(pair)
    if all(place_of(name) for name in names.values()):
        whole = {role: name for role, name in names.items() if role == "target" or not head_shape(name)}
        folders = {role: str(place_of(name)) for role, name in whole.items()}
        configs = {role: checkpoints.load_config(folder) for role, folder in folders.items()}
        drafting = MTP if pair.draft == MTP else names.get("draft")
        head = head_shape(drafting) if drafting else None
        dtype = DTYPES.get(pair.dtype)
        try:
            path = decoding_path.expected_path(configs, device, exact=pair.exact, dtype=dtype, head=head)
        except ConfigError:
            return  # the probe of models reports that quantised weights cannot be loaded
        if tokenizers_of(*folders.values())[1]:
            reason = TRANSLATED if has_graphs(device) else f"{path.reason}; {TRANSLATED}"
            path = decoding_path.DecodingPath(decoding_path.HOST, reason)
        yield Finding("ok", f"rounds of the models would be driven by: {path.name}, {path.reason}")


def settings(case: Case) -> Iterator[Finding]:
    """Reports the settings file and the DYNATUI_* variables."""
    try:
        yield Finding("ok", case.settings())
    finally:
        for name in case.strange_variables:
            yield Finding(
                "note", f"the variable {name} sets no option", "dynatui config --print-default lists all settings"
            )


def log(case: Case) -> Iterator[Finding]:
    """Reports the path of the log file, which receives errors and the messages of libraries."""
    from dynatui.terminal.guard import log_path  # noqa: PLC0415 - imports textual

    path = log_path(case.log)
    if str(path) == os.devnull:
        yield Finding("note", "no log can be written in the user's log folder", "name a file with --log-file")
    else:
        yield Finding("ok", f"errors, and messages of libraries, go to {path}")


def recordings(_case: Case) -> Iterator[Finding]:
    """Reports the folder for recordings that are started by a key, and its free space."""
    try:
        folder = recordings_folder()
    except DecoderError as error:
        yield Finding("note", f"no recording can be started by a key: {error}")
        return
    free = shutil.disk_usage(folder).free
    verdict: Verdict = "note" if free < _LITTLE_SPACE else "ok"
    yield Finding(verdict, f"recordings started by a key go to {folder}, where {size(free)} are free")


PROBES: dict[str, Probe] = {
    probe.__name__: probe
    for probe in (terminal, versions, devices, kernels, models, rounds, times, settings, log, recordings)
}


def _is_terminal(name: str) -> bool:
    stream = getattr(sys, name)
    return stream is not None and stream.isatty()


def _size() -> Iterator[Finding]:
    for descriptor in (1, 2, 0):
        with suppress(OSError):
            width, height = os.get_terminal_size(descriptor)
            small = width < _SMALL[0] or height < _SMALL[1]
            remedy = f"panels need at least {_SMALL[0]}x{_SMALL[1]} characters" if small else ""
            yield Finding("note" if small else "ok", f"{width}x{height} characters", remedy)
            return


def _colours(kind: str) -> str:
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit") or kind.endswith("direct"):
        return "16 million"
    return "256" if "256color" in kind else "16"


def _cpu_passes() -> Finding:
    """What computes the passes of native models on a CPU."""
    from decoder.forward.compiled.library import ADVICE, machine, missing  # noqa: PLC0415 - imports torch

    if why := missing():
        return Finding("note", f"cpu: torch computes all passes, which is slower; {why}", ADVICE)
    return Finding("ok", f"cpu: compiled passes ({machine()}) compute GPT-NeoX, Llama, Mistral, Qwen2 and Qwen3 models")


def _memory() -> str:
    free, total = host_memory() or (None, 0)
    return "" if free is None else f", {size(free)} of {size(total)} memory free"


def _cpu_has_fp16() -> bool:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
        return not _NATIVE_FP16.isdisjoint(flags.split())
    return False


def _dtypes(bf16: bool, fp16: bool) -> str:  # noqa: FBT001 - two values of the same kind
    return f"bfloat16 {'native' if bf16 else 'emulated'}, float16 {'native' if fp16 else 'emulated'}"


def _described(gpu: Gpu) -> str:
    memory = ""
    if gpu.total_bytes and gpu.free_bytes is not None:
        memory = f", {size(gpu.free_bytes)} of {size(gpu.total_bytes)} memory free"
    dtypes = f", {_dtypes(gpu.capability >= _BF16_CAPABILITY, fp16=True)}" if gpu.capability else ""
    return f"{gpu.name}{memory}{dtypes}"
