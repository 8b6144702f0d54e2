"""The probe of expected times in `dynatui doctor`: how fast the pair can be at most on this machine.

The times are lower bounds from the sizes of the models and the speed of the device (`decoder.analysis.roofline`); reads
no weights. Torch and the model libraries are imported inside the functions.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from decoder.analysis.roofline import SIZES, DeviceSpeed, PassWork, break_even, expected_times, round_s, step_s
from decoder.errors import DecoderError
from decoder.events import Expected
from decoder.models.gguf.file import GgufFile
from dynatui.cli.doctor_findings import Case, Finding
from dynatui.cli.doctor_models import inflated, lacks_target, loaded_form, names_of, place_of
from dynatui.gpu import gpus, memory_bytes_per_s
from dynatui.number_format import short

_UNKNOWN = "the least times of the models are unknown"


def times(case: Case) -> Iterator[Finding]:
    """Reports the highest speed of plain decoding, and for rounds of several sizes, the least time and the tokens per
    round from which they pay.
    """
    names = names_of(case.models)
    if lacks_target(case.models) or not all(place_of(name) for name in names.values()):
        return  # the probe of models reports this
    with suppress(DecoderError):  # the probe of models reports errors
        target = _model(case, "target", names["target"])
        if isinstance(target, str):
            yield Finding("note", f"{_UNKNOWN}: {target}")
            return
        draft = _model(case, "draft", names["draft"]) if "draft" in names else None
        yield Finding("ok", _speed(target))
        yield from _times(target, draft)


@dataclass(frozen=True)
class _Model:
    """A model on its device."""

    dtype: str
    device: str
    work: PassWork
    speed: DeviceSpeed
    context: int
    """Context length, in tokens."""


def _model(case: Case, role: str, name: str) -> "_Model | str":
    """A model with the work of its passes and the speed of its device; if these are unknown, the reason in words."""
    from decoder.models import checkpoints  # noqa: PLC0415 - imports torch
    from decoder.models.heads import head_shape  # noqa: PLC0415 - imports torch
    from decoder.run.decoding_path import stored_dtype  # noqa: PLC0415 - imports torch
    from decoder.run.expected import speed_of, work_of_config  # noqa: PLC0415 - imports torch
    from decoder.system.device import choose_device  # noqa: PLC0415 - imports torch

    place = str(place_of(name) or name)
    if role == "draft" and head_shape(place):
        return "a drafting head reads states of the target"
    larger = inflated(case.models).get(role)
    config: Any = larger.architecture if larger else checkpoints.load_config(place)
    in_gguf = isinstance(config, GgufFile)
    if in_gguf and gpus() and case.models.gpu_layers != 0:
        return "llama.cpp would spread a GGUF file over CPU and GPU"
    device = choose_device("cpu" if in_gguf else case.models.device)
    dtype, quantised = loaded_form(case, role, config)
    stored = dtype if quantised else stored_dtype(config, device, dtype)
    work = work_of_config(config, stored, quantised)
    if work is None:
        return f"it is unknown how many experts a token of the {role} uses, or how many bits its weights have"
    plain = not in_gguf and not (quantised and quantised.packed)
    speed = speed_of(device, dtype if plain else None, work, memory_bytes_per_s(str(device)))
    if speed is None:
        return f"the driver does not report clock and bus width of the memory of {device}"
    return _Model(str(dtype).removeprefix("torch."), str(device), work, speed, _context(config))


def _context(config: Any) -> int:
    from decoder.forward.windows import longest_text  # noqa: PLC0415 - imports torch

    if isinstance(config, GgufFile):
        return config.size("context_length") or 0
    return longest_text(config.get_text_config() if hasattr(config, "get_text_config") else config)


def _speed(model: _Model) -> str:
    import torch  # noqa: PLC0415 - needed only by this probe

    bandwidth, rate = f"{short(model.speed.bytes_per_s / 1e9, 1)} GB/s", model.speed.flops_per_s
    if model.device != "cpu":
        return (
            f"{model.device} reads at most {bandwidth}, by the memory's clock and bus width; arithmetic is not counted"
        )
    count = torch.get_num_threads()
    arithmetic = f" and computes {short(rate / 1e9, 0)} GFLOP/s in {model.dtype}" if rate else ""
    return f"the CPU reads {bandwidth} of weights{arithmetic}, measured with {count} thread{'s' * (count > 1)}"


def _times(target: _Model, draft: "_Model | str | None") -> Iterator[Finding]:
    drafting = (draft.work, draft.speed) if isinstance(draft, _Model) else ()
    expected = expected_times(target.work, target.speed, *drafting)
    at_end = expected_times(target.work, target.speed, *drafting, text=target.context)
    yield Finding(
        "ok",
        f"plain decoding: at most {_rate(expected)} tokens/s, {_rate(at_end)} with a full context of {target.context} "
        f"tokens{'; of the experts, only those of one token are counted' * target.work.sparse}",
    )
    for levels, rows in SIZES:
        yield Finding("ok", _round(expected, levels, rows, sparse=target.work.sparse))
    if isinstance(draft, str):
        yield Finding("note", f"passes of the draft are not counted: {draft}")


def _rate(expected: Expected) -> str:
    rate = 1 / step_s(expected)
    return short(rate, 1 if rate >= 1 else 2)


def _round(expected: Expected, levels: int, rows: int, *, sparse: bool) -> str:
    level = f"{levels} level{'s' * (levels > 1)}"
    least = f"a round of {level} and {rows} rows: at least {short(1000 * round_s(expected, levels, rows))} ms"
    if sparse:  # the experts that further rows choose are not counted, so that the tokens would be too few
        return least
    return f"{least}; it pays from {short(break_even(expected, levels, rows))} tokens per round on"
