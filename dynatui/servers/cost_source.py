"""Where the costs of advice come from, best first: steps of a running server, given times, a named device's roofline,
what the profile has.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from decoder.analysis.roofline import DeviceSpeed
from decoder.errors import ConfigError, quoted
from dynatui.number_format import counted, ms, percent, short
from dynatui.servers.load import LoadCosts, PassCost, fitted, measured, roofline, scaled
from dynatui.servers.profile_file import DraftProfile, Profile, StepPoint

_COUNTED = re.compile(r"(?:(\d{1,3})\s*x\s*)?(.+)")


@dataclass(frozen=True)
class Device:
    title: str
    speed: DeviceSpeed
    memory_bytes: float


def _device(title: str, terabytes_per_s: float, teraflops: float, gigabytes: float) -> Device:
    return Device(title, DeviceSpeed(terabytes_per_s * 1e12, teraflops * 1e12), gigabytes * 1e9)


DEVICES: tuple[Device, ...] = (
    _device("H100", 3.35, 989, 80),
    _device("H100 PCIe", 2.0, 756, 80),
    _device("H200", 4.8, 989, 141),
    _device("B200", 8.0, 2250, 180),
    _device("A100", 2.039, 312, 80),
    _device("A100 40GB", 1.555, 312, 40),
    _device("L40S", 0.864, 362, 48),
    _device("L4", 0.3, 121, 24),
    _device("A10", 0.6, 125, 24),
    _device("T4", 0.32, 65, 16),
    _device("RTX 3090", 0.936, 71, 24),
    _device("RTX 4090", 1.008, 165, 24),
    _device("RTX 5090", 1.792, 209, 32),
    _device("MI300X", 5.3, 1307, 192),
)
"""Peaks by the vendors' data sheets: bandwidth of the memory, dense products in bfloat16 (T4: float16), memory."""


@dataclass(frozen=True)
class CostSource:
    words: str
    at_most: bool
    """Whether the times are least times, so that speed-ups are at most the printed ones."""
    costs: Mapping[str, LoadCosts]
    """By draft; drafts whose costs are unknown are absent."""
    memory_bytes: float | None = None


def device(name: str) -> Device:
    """Such as "H100" or "2x H100"; several have the sum of their speeds, since their communication is not counted."""
    match = _COUNTED.fullmatch(name.strip().lower())
    count, wanted = (match[1], match[2]) if match else (None, "")
    found = next((each for each in DEVICES if _plain(each.title) == _plain(wanted)), None)
    number = int(count or 1)
    if found is None or number == 0:
        known = ", ".join(each.title for each in DEVICES)
        raise ConfigError(f"--gpu is {quoted(name)}; give one of {known}, several as in 2xH100")
    speed = found.speed
    several = DeviceSpeed(speed.bytes_per_s * number, speed.flops_per_s and speed.flops_per_s * number)
    return Device(f"{number} x {found.title}" if number > 1 else found.title, several, found.memory_bytes * number)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def source(
    profile: Profile,
    *,
    points: Sequence[StepPoint] = (),
    step_s: float | None = None,
    draft_s: tuple[float, float] | None = None,
    on: Device | None = None,
) -> CostSource:
    """`draft_s` are seconds of a round that do not depend on the drafted tokens, and of one drafted token. Raises
    ConfigError if no costs are known, or too few.
    """
    known, memory = profile.costs, on.memory_bytes if on else None
    if points:
        return replace(_of_server(profile, points), memory_bytes=memory)
    if step_s is not None:
        return replace(_of_times(profile, step_s, draft_s), memory_bytes=memory)
    if on:
        words = f"least times on {on.title} (roofline)"
        return CostSource(words, at_most=True, costs=_rooflines(profile, on.speed), memory_bytes=on.memory_bytes)
    if known is None or not (known.points or known.target_s or known.bytes_per_s):
        raise ConfigError("the profile has no costs of passes; give --gpu NAME, --step-ms, or --recording of a server")
    if known.points:
        return _of_server(profile, known.points)
    where = known.device or "this machine"
    if known.source == "roofline" and known.bytes_per_s:
        speed = DeviceSpeed(known.bytes_per_s, known.flops_per_s)
        words = f"least times on {where} (roofline)"
        return CostSource(words, at_most=True, costs=_rooflines(profile, speed))
    words = f"passes measured on {where}, without what a server adds" if known.source == "measured" else "given passes"
    return CostSource(words, at_most=False, costs=_of_passes(profile))


def _by_draft(profile: Profile, of: Callable[[str, DraftProfile], LoadCosts | None]) -> dict[str, LoadCosts]:
    costs = {name: of(name, draft) for name, draft in profile.drafts.items()}
    return {name: each for name, each in costs.items() if each is not None}


def _of_server(profile: Profile, points: Sequence[StepPoint]) -> CostSource:
    fit = fitted(points)
    first, last = (short(load, 0) for load in fit.streams)
    depths = ", ".join(f"{k:g}" for k in fit.drafted)
    words = (
        f"steps of a running server: {counted(len(points), 'reading')}, {first} to {last} running requests, "
        f"K {depths}; the fit is off by {percent(fit.error)} at most"
    )
    plain = fit.drafted[0] == 0
    missing = "" if plain else "; no reading without drafts, so a plain step is the fit's at K 0"
    return CostSource(words + missing, at_most=not plain, costs=_by_draft(profile, lambda *_: fit.costs))


def _of_times(profile: Profile, step_s: float, draft_s: tuple[float, float] | None) -> CostSource:
    drafting_s, token_s = draft_s or (0.0, 0.0)
    given = LoadCosts(PassCost(step_s), token_s=token_s, drafting_s=drafting_s)
    models = [draft for draft in profile.drafts.values() if draft.kind != "lookup"]
    if draft_s is None and models:
        raise ConfigError("--step-ms is given without --draft-ms; give the time of a drafted token too")
    each = f"{ms(token_s)} ms a drafted token" + (f" and {ms(drafting_s)} ms a round" if drafting_s else "")
    words = f"given times: {ms(step_s)} ms a step, {each}, taken to be the same at every load"
    free = LoadCosts(given.target)
    return CostSource(
        words, at_most=True, costs=_by_draft(profile, lambda _, draft: free if draft.kind == "lookup" else given)
    )


def _rooflines(profile: Profile, on: DeviceSpeed) -> dict[str, LoadCosts]:
    target = roofline(profile.size, on)
    if target is None:
        raise ConfigError("the profile does not have the size of the target, so its least times are unknown")

    def costs(_: str, draft: DraftProfile) -> LoadCosts | None:
        if draft.kind == "lookup":
            return LoadCosts(target)
        cost = roofline(draft.size, on) if draft.size else None
        return LoadCosts(target, cost) if cost else None

    return _by_draft(profile, costs)


def _of_passes(profile: Profile) -> dict[str, LoadCosts]:
    """Passes were measured after `context` tokens of one text; further texts add the reading of theirs."""
    known = profile.costs
    if known is None or not known.target_s:
        raise ConfigError("the profile has no times of the target's passes; give --gpu NAME or --step-ms")
    cached_s = (profile.size.kv_bytes_per_token or 0.0) / known.bytes_per_s if known.bytes_per_s else 0.0
    passes = measured(known.target_s, known.fixed_s)
    target = replace(passes, fixed_s=passes.fixed_s - known.context * cached_s, cached_s=cached_s)

    def costs(name: str, draft: DraftProfile) -> LoadCosts | None:
        if draft.kind == "lookup":
            return LoadCosts(target)
        one_s = known.draft_s.get(name)
        return LoadCosts(target, scaled(passes, one_s)) if one_s else None

    return _by_draft(profile, costs)
