"""The costs that advice uses, the best that are known: steps of a running server, given times, least times of a device,
what the profile has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from decoder.analysis.roofline import DeviceSpeed
from decoder.errors import ConfigError
from dynatui.number_format import counted, ms, percent, short
from dynatui.servers.costs import NamedDevice
from dynatui.servers.load import LoadCosts, PassCost, fitted, measured, roofline, scaled
from dynatui.servers.profile_file import DraftProfile, Profile, StepPoint


@dataclass(frozen=True)
class CostSource:
    words: str
    at_most: bool
    """Whether the times are least times, so that speed-ups are at most the printed ones."""
    costs: Mapping[str, LoadCosts]
    """By draft; drafts whose costs are unknown are absent."""
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
    """`draft_s`: of a drafted token, for each draft with a model in the profile's order, or one number for all;
    `drafting_s`: of a round with drafts, whatever their number. Raises ConfigError if no costs are known, or too few.
    """
    memory = on.memory_bytes if on else None
    if points:
        return replace(_of_server(profile, points), memory_bytes=memory)
    if step_s is not None:
        return replace(_of_times(profile, step_s, draft_s, drafting_s), memory_bytes=memory)
    if on:
        words = f"the data sheet of {on.name} (roofline)"
        return CostSource(words, at_most=True, costs=_rooflines(profile, on.speed), memory_bytes=on.memory_bytes)
    return _of_profile(profile)


def _of_profile(profile: Profile) -> CostSource:
    known = profile.costs
    if known is None or not (known.target_s or known.bytes_per_s):
        raise ConfigError("the profile has no costs of passes; give --roofline DEVICE, or --step-ms and --draft-ms")
    where = known.device or "this machine"
    if known.source == "roofline" and known.bytes_per_s:
        speed = DeviceSpeed(known.bytes_per_s, known.flops_per_s)
        words = f"the data sheet of {where} (roofline)"
        return CostSource(words, at_most=True, costs=_rooflines(profile, speed))
    if known.source == "given":
        return CostSource("given passes, the same at every load", at_most=True, costs=_of_passes(profile))
    words = f"passes measured on {where}, without what a server adds"
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


def _of_times(profile: Profile, step_s: float, draft_s: tuple[float, ...], drafting_s: float) -> CostSource:
    models = [name for name, draft in profile.drafts.items() if draft.kind != "lookup"]
    if models and len(draft_s) not in (1, len(models)):
        wanted = f"one time, or one for each of {', '.join(models)}"
        raise ConfigError(f"--step-ms needs --draft-ms with {wanted}; {len(draft_s)} are given")
    times = dict(zip(models, draft_s * len(models) if len(draft_s) == 1 else draft_s, strict=False))
    costs = {
        name: LoadCosts(PassCost(step_s), token_s=times.get(name, 0.0), drafting_s=drafting_s if name in times else 0.0)
        for name in profile.drafts
    }
    each = "".join(f", {ms(times[name])} ms a token of {name}" for name in models)
    added = f", {ms(drafting_s)} ms a round with drafts" if drafting_s else ""
    words = f"given times: {ms(step_s)} ms a step{added}{each}; the same at every load"
    return CostSource(words, at_most=True, costs=costs)


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
        raise ConfigError(
            "the profile has no times of the target's passes; give --roofline DEVICE, or --step-ms and --draft-ms"
        )
    cached_s = (profile.size.kv_bytes_per_token or 0.0) / known.bytes_per_s if known.bytes_per_s else 0.0
    passes = measured(known.target_s, known.fixed_s)
    target = replace(passes, fixed_s=passes.fixed_s - known.context * cached_s, cached_s=cached_s)

    def costs(name: str, draft: DraftProfile) -> LoadCosts | None:
        if draft.kind == "lookup":
            return LoadCosts(target)
        one_s = known.draft_s.get(name)
        return LoadCosts(target, scaled(passes, one_s)) if one_s else None

    return _by_draft(profile, costs)
