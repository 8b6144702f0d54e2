"""The costs of a server's forward passes, from the first known of these sources: step times of a running server, times
that the user gives, roofline times of a device, or the profile.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from decoder.analysis.roofline import DeviceSpeed
from decoder.errors import ConfigError, quoted
from dynatui.number_format import counted, ms, percent, short
from dynatui.servers.load import LoadCosts, PassCost, fitted, measured, roofline, scaled
from dynatui.servers.profile_file import Costs, DraftProfile, ModelSize, Profile, StepPoint

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 33, 65)
"""Numbers of rows (tokens of one text) for which a profile has the time of a target pass."""
DEVICES: Mapping[str, tuple[float, float, float]] = {
    "B200": (8000, 2250, 180),
    "H200": (4800, 989, 141),
    "H100": (3350, 989, 80),
    "H100-PCIe": (2000, 756, 80),
    "A100-80GB": (2039, 312, 80),
    "A100-40GB": (1555, 312, 40),
    "MI300X": (5300, 1307, 192),
    "L40S": (864, 362, 48),
    "L4": (300, 121, 24),
    "A10": (600, 125, 24),
    "T4": (320, 65, 16),
    "RTX5090": (1792, 209, 32),
    "RTX4090": (1008, 165, 24),
    "RTX3090": (936, 71, 24),
}
"""(GB/s of memory, dense bfloat16 TFLOPS (T4: float16), GB of memory), by the vendors' data sheets; SXM unless another
form factor is named.
"""
_SEVERAL = re.compile(r"(?:([1-9][0-9]{0,2})x)?(.*)", re.DOTALL)


@dataclass(frozen=True)
class NamedDevice:
    name: str
    speed: DeviceSpeed
    memory_bytes: float | None = None


def named_device(text: str) -> NamedDevice:
    """Parses a name of `DEVICES` in any case, several devices such as 2xH100, or GB/s and TFLOPS such as 3350,989;
    raises ConfigError for other text. Speeds of several devices are added; their communication is not counted.
    """
    known = {name.casefold(): name for name in DEVICES}
    match = _SEVERAL.fullmatch(text.strip().casefold())
    if match and (name := known.get(match[2])):
        number = int(match[1] or 1)
        bandwidth, rate, memory = (number * each for each in DEVICES[name])
        title = f"{number}x{name}" if match[1] else name
        return NamedDevice(title, DeviceSpeed(bandwidth * 1e9, rate * 1e12), memory * 1e9)
    with suppress(ValueError):
        bandwidth, rate = map(float, text.split(","))
        if 0 < bandwidth < 1e9 and 0 < rate < 1e9:
            return NamedDevice(f"{bandwidth:g} GB/s, {rate:g} TFLOPS", DeviceSpeed(bandwidth * 1e9, rate * 1e12))
    remedy = f"give {', '.join(DEVICES)}, several as in 2xH100, or GB/s and TFLOPS such as 3350,989"
    raise ConfigError(f"--roofline is {quoted(text)}; {remedy}")


def least_costs(on: NamedDevice, target: ModelSize, drafts: Mapping[str, ModelSize], context: int) -> Costs:
    """Roofline costs with `context` tokens in the KV cache. Raises ConfigError if the size of the target is unknown."""
    cost = roofline(target, on.speed)
    if cost is None:
        raise ConfigError(f"--roofline needs the size of {target.name}, which is unknown; leave --roofline out")
    known = {name: found for name, size in drafts.items() if (found := roofline(size, on.speed))}
    return Costs(
        source="roofline",
        device=on.name,
        context=context,
        target_s={rows: float(cost.seconds(1, rows, context)) for rows in ROWS},
        draft_s={name: float(each.seconds(1, 1, context)) for name, each in known.items()},
        bytes_per_s=on.speed.bytes_per_s,
        flops_per_s=on.speed.flops_per_s,
    )


@dataclass(frozen=True)
class CostSource:
    words: str
    at_most: bool
    """Whether speed-ups computed from these costs are upper bounds, as for a roofline."""
    costs: Mapping[str, LoadCosts]
    """Costs by draft; drafts whose costs are unknown are absent."""
    memory_bytes: float | None = None


def source(
    profile: Profile,
    *,
    points: Sequence[StepPoint] = (),
    step_s: float | None = None,
    draft_s: tuple[float, ...] = (),
    drafting_s: float = 0.0,
    on: NamedDevice | None = None,
) -> CostSource:
    """`draft_s`: seconds of a drafted token, as one number, or one for each draft other than lookups, in the profile's
    order; `drafting_s`: further seconds of each round with a draft. Raises ConfigError if costs are missing.
    """
    if points:
        found = _of_server(profile, points)
    elif step_s is not None:
        found = _of_times(profile, step_s, draft_s, drafting_s)
    elif on:
        found = _of_data_sheet(profile, on.name, on.speed)
    else:
        found = _of_profile(profile)
    return replace(found, memory_bytes=on.memory_bytes) if on else found


def _of_server(profile: Profile, points: Sequence[StepPoint]) -> CostSource:
    fit = fitted(points)
    first, last = (short(load, 0) for load in fit.streams)
    depths = ", ".join(f"{k:g}" for k in fit.drafted)
    words = (
        f"steps of a running server: {counted(len(points), 'reading')}, {first} to {last} running requests, "
        f"K {depths}; the fit is off by {percent(fit.error)} at most"
    )
    plain = fit.drafted[0] == 0
    missing = "" if plain else "; no reading is without drafts, so the time of a plain step is extrapolated"
    return CostSource(words + missing, at_most=not plain, costs=dict.fromkeys(profile.drafts, fit.costs))


def _of_times(profile: Profile, step_s: float, draft_s: tuple[float, ...], drafting_s: float) -> CostSource:
    models = [name for name, draft in profile.drafts.items() if draft.kind != "lookup"]
    if models and len(draft_s) not in (1, len(models)):
        wanted = f"one time, or one for each of {', '.join(models)}"
        raise ConfigError(f"--step-ms needs --draft-ms with {wanted}; {len(draft_s)} are given")
    costs = dict.fromkeys(profile.drafts, LoadCosts(PassCost(step_s)))
    added = f", {ms(drafting_s)} ms more with drafts" if drafting_s else ""
    words = f"given times: {ms(step_s)} ms a step{added}"
    for name, token_s in zip(models, draft_s * len(models), strict=False):
        costs[name] = LoadCosts(PassCost(step_s), token_s=token_s, drafting_s=drafting_s)
        words += f", {ms(token_s)} ms more for each token of {name}"
    return CostSource(f"{words}; the same at every load", at_most=True, costs=costs)


def _of_data_sheet(profile: Profile, name: str, speed: DeviceSpeed) -> CostSource:
    target = roofline(profile.size, speed)
    if target is None:
        raise ConfigError("the profile does not have the size of the target, so its least times are unknown")
    costs = _by_draft(profile, target, lambda _, draft: roofline(draft.size, speed))
    return CostSource(f"the data sheet of {name} (roofline)", at_most=True, costs=costs)


def _of_profile(profile: Profile) -> CostSource:
    known = profile.costs
    if known and known.source == "roofline" and known.bytes_per_s:
        speed = DeviceSpeed(known.bytes_per_s, known.flops_per_s)
        return _of_data_sheet(profile, known.device or "this machine", speed)
    if known is None or not known.target_s:
        raise ConfigError("the profile has no costs of passes; give --roofline DEVICE, or --step-ms and --draft-ms")
    target, times = measured(known.target_s, known.fixed_s), known.draft_s
    costs = _by_draft(profile, target, lambda name, _: scaled(target, times[name]) if times.get(name) else None)
    if known.source == "given":
        return CostSource("times given to dynatui profile, the same at every load", at_most=True, costs=costs)
    words = f"passes measured on {known.device or 'this machine'}, without what a server adds"
    return CostSource(words, at_most=False, costs=costs)


def _by_draft(
    profile: Profile, target: PassCost, draft_cost: Callable[[str, DraftProfile], PassCost | None]
) -> dict[str, LoadCosts]:
    """Costs by draft. A lookup needs no pass; drafts whose passes have an unknown cost are left out."""
    drafts = {
        name: PassCost() if draft.kind == "lookup" else draft_cost(name, draft)
        for name, draft in profile.drafts.items()
    }
    return {name: LoadCosts(target, cost) for name, cost in drafts.items() if cost}
