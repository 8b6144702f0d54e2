"""A cost model of batches: the time of a server's steps by number of running requests (streams) and drafted tokens.

Its costs come from the first known of these sources: step times of a running server, times that the user gives, times
of a device by the roofline model, or the profile.

A forward pass over n rows of each of B streams, with c tokens of each stream in the KV cache, takes

    pass_s = fixed + products(n B) + B (stream + c cached)

All rows share one reading of the weights, so with more rows the products change from memory-bound to compute-bound: in
a roofline, products(rows) = max(weights, rows * row). Keys and values are read once per stream, for all of its rows
(MagicDec, arXiv 2408.11049). For a round that drafts K tokens in P(K) draft passes and yields L tokens on average,

    round_s = drafting + K * token + P(K) * draft pass_s(1 row) + target pass_s(K + 1 rows)
    speed-up = L * target pass_s(1 row) / round_s

P(K) is K, or less if a draft pass computes several levels. Prefill between the rounds is left out.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import median
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from decoder.analysis.roofline import FLOPS, DeviceSpeed
from decoder.errors import ConfigError
from dynatui.number_format import counted, ms, percent, short
from dynatui.servers.profile_file import ModelSize, Profile, StepPoint

Reals: TypeAlias = NDArray[np.float64]
Number = TypeVar("Number", float, Reals)
"""A number of running requests, or an array of such numbers; results have the same type."""
_LEAST_GAIN = 1e-3
"""A fit with other or more terms replaces an earlier one only if its squared error is lower by this share."""


@dataclass(frozen=True)
class PassCost:
    """The terms of `pass_s` (see the module), in seconds; all 0 for drafts that need no pass."""

    fixed_s: float = 0.0
    products_s: tuple[tuple[float, float], ...] = ((0.0, 0.0),)
    """(rows, seconds), ascending, with linear interpolation."""
    row_s: float = 0.0
    """Seconds per row beyond the last entry of `products_s`."""
    stream_s: float = 0.0
    cached_s: float = 0.0

    def seconds(self, streams: Number, rows: float, context: float = 0.0) -> Number:
        """Time of a pass over `rows` rows of each stream, with `context` tokens of each in the KV cache."""
        known, known_s = zip(*self.products_s, strict=True)
        every = rows * streams
        products_s = np.interp(every, known, known_s) + self.row_s * np.maximum(0.0, every - known[-1])
        whole: Number = self.fixed_s + products_s + streams * (self.stream_s + context * self.cached_s)
        return whole


@dataclass(frozen=True)
class Round:
    """Mean counts of a round of one stream."""

    passes: float
    """Number of draft passes."""
    rows: float
    """Rows that the target verifies, including the row of its own token."""
    draft_rows: float = 1
    """Rows of a draft pass."""


PLAIN = Round(0, 1)


def chain(drafted: float, levels_at_once: int = 1, verified: float | None = None) -> Round:
    """A round that drafts a chain; `verified`: mean number of drafted tokens, if below `drafted`, as for lookups."""
    return Round(math.ceil(drafted / levels_at_once), 1 + (drafted if verified is None else verified))


@dataclass(frozen=True)
class LoadCosts:
    target: PassCost
    draft: PassCost = field(default_factory=PassCost)
    token_s: float = 0.0
    """Seconds per drafted token, in addition to the passes."""
    drafting_s: float = 0.0
    """Seconds per round with a draft, in addition to passes and `token_s`."""

    def round_s(self, streams: Number, shape: Round, context: float = 0.0) -> Number:
        verify_s = self.target.seconds(streams, shape.rows, context)
        if shape == PLAIN:
            return verify_s
        passes_s = shape.passes * self.draft.seconds(streams, shape.draft_rows, context)
        return self.drafting_s + (shape.rows - 1) * self.token_s + passes_s + verify_s

    def speedups(self, length: float, shape: Round, streams: Sequence[int], context: float = 0.0) -> Reals:
        """Speed-up over plain decoding at each number of `streams`, if such rounds yield `length` tokens on average."""
        loads = np.array(streams, float)
        return length / (self.round_s(loads, shape, context) / self.round_s(loads, PLAIN, context))


def roofline(size: ModelSize | None, on: DeviceSpeed) -> PassCost | None:
    """Least times of a model's passes, from its bytes and its operations; None if the model's size is unknown."""
    if size is None or size.pass_bytes is None:
        return None
    weights_s = size.pass_bytes / on.bytes_per_s
    row_s = FLOPS * size.weights / on.flops_per_s if size.weights and on.flops_per_s else 0.0
    knee = [(weights_s / row_s, weights_s)] if row_s else []
    cached_s = (size.kv_bytes_per_token or 0.0) / on.bytes_per_s
    return PassCost(products_s=((0.0, weights_s), *knee), row_s=row_s, cached_s=cached_s)


def measured(by_rows: Mapping[int, float], fixed_s: float = 0.0) -> PassCost:
    """Costs from measured times of passes over one text (rows -> seconds), which include reading its KV cache. Beyond
    the largest number of rows, times grow as between the last two.
    """
    points = sorted(by_rows.items())
    (fewer, before_s), (most, last_s) = points[-2:][0], points[-1]
    row_s = max(0.0, last_s - before_s) / max(1, most - fewer)
    return PassCost(fixed_s, tuple((float(rows), s) for rows, s in points), row_s)


def scaled(cost: PassCost, first_s: float) -> PassCost:
    """Costs of a smaller model: `cost`, scaled so that a pass over one row takes `first_s`."""
    factor = first_s / cost.seconds(1, 1)
    products_s = tuple((rows, s * factor) for rows, s in cost.products_s)
    return PassCost(cost.fixed_s * factor, products_s, cost.row_s * factor)


@dataclass(frozen=True)
class Fit:
    costs: LoadCosts
    streams: tuple[float, float]
    """Least and largest number of running requests in the points."""
    drafted: tuple[float, ...]
    """Numbers of drafted tokens in the points; if 0 is absent, the fitted plain step includes the cost of drafting."""
    error: float
    """Largest relative difference between a step time and its fit."""


def fitted(points: Iterable[StepPoint]) -> Fit:
    """Fits non-negative costs to step times by least squares of the relative errors:

        step_s = fixed + B stream + K token + B K row + [K > 0] drafting

    Step times of the same load and number of drafted tokens are replaced by their median. Of the sets of terms that fit
    equally well, the smallest is used, and of equally small sets the first in the order of the formula. So two points
    give the fixed cost and the cost per token. Raises ConfigError if all points have the same number of drafted tokens.
    """
    cells = medians((point for point in points if point.step_s > 0 and point.running > 0), per_octave=4)
    drafted = tuple(sorted({point.k for point in cells}))
    if len(drafted) < 2:
        seen = f"only rounds of {drafted[0]:g} drafted tokens" if drafted else "no step times"
        raise ConfigError(f"the server showed {seen}; watch it also without drafts, or with another number")
    running, k, step_s = np.array([(point.running, point.k, point.step_s) for point in cells]).T
    terms = (np.stack([np.ones_like(k), running, k, running * k, k > 0]) / step_s).T
    factors = _least_squares(terms)
    fixed_s, stream_s, token_s, row_s, drafting_s = factors.tolist()
    target = PassCost(fixed_s, row_s=row_s, stream_s=stream_s - row_s)
    error = float(np.abs(terms @ factors - 1).max())
    streams = float(running.min()), float(running.max())
    return Fit(LoadCosts(target, token_s=token_s, drafting_s=drafting_s), streams, drafted, error)


def medians(points: Iterable[StepPoint], *, per_octave: int) -> list[StepPoint]:
    """Medians of points with equal `k` and similar load; `per_octave`: groups of loads per doubling of `running`."""
    groups = defaultdict[tuple[int, float], list[StepPoint]](list)
    for point in points:
        groups[round(per_octave * math.log2(max(1.0, point.running))), round(point.k, 1)].append(point)
    return [
        StepPoint(
            running=median(each.running for each in group),
            k=k,
            step_s=median(each.step_s for each in group),
            steps=math.fsum(each.steps for each in group),
        )
        for (_, k), group in sorted(groups.items())
    ]


def _least_squares(terms: Reals) -> Reals:
    """Non-negative factors with which the weighted sum of each row of `terms` is nearest to 1."""
    count = terms.shape[1]
    best, least = np.zeros(count), float(len(terms))
    for columns in (list(some) for size in range(1, count + 1) for some in combinations(range(count), size)):
        factors = np.linalg.lstsq(terms[:, columns], np.ones(len(terms)), rcond=None)[0]
        error = float(((terms[:, columns] @ factors - 1) ** 2).sum())
        if (factors >= 0).all() and error < least * (1 - _LEAST_GAIN) - 1e-12:
            best, least = np.zeros(count), error
            best[columns] = factors
    return best


@dataclass(frozen=True)
class LoadCurve:
    """Speed-up over plain decoding by number of running requests."""

    streams: tuple[int, ...]
    """Numbers of running requests, ascending."""
    by_drafted: Mapping[int, tuple[float, ...]]
    """Number of drafted tokens -> speed-ups, for the numbers to be shown."""
    advised: tuple[float, ...]
    """Speed-ups with the advised number of drafted tokens at each load; 1 where no draft is advised."""


@dataclass(frozen=True)
class NamedDevice:
    name: str
    speed: DeviceSpeed
    memory_bytes: float | None = None


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
    """Costs from the first source that is given: `points`, `step_s`, the device `on`, or the profile.

    `draft_s`: seconds of a drafted token, as one number, or one for each draft other than lookups, in the profile's
    order; `drafting_s`: further seconds of each round with a draft. Raises ConfigError if costs are missing.
    """
    known = profile.costs
    if on is None and known and known.source == "roofline" and known.bytes_per_s:
        on = NamedDevice(known.device or "this machine", DeviceSpeed(known.bytes_per_s, known.flops_per_s))
    if points:
        found = _of_server(profile, points)
    elif step_s is not None:
        found = _of_times(profile, step_s, draft_s, drafting_s)
    else:
        found = _of_passes(profile, on)
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


def _of_passes(profile: Profile, on: NamedDevice | None) -> CostSource:
    """Costs of passes by a data sheet or, without `on`, by the times in the profile; a lookup needs no pass."""
    known, lookups = profile.costs, [name for name, draft in profile.drafts.items() if draft.kind == "lookup"]
    passes: dict[str, PassCost | None]
    if on:
        target, at_most, words = roofline(profile.size, on.speed), True, f"the data sheet of {on.name} (roofline)"
        if target is None:
            raise ConfigError("the profile does not have the size of the target, so its least times are unknown")
        passes = {name: roofline(draft.size, on.speed) for name, draft in profile.drafts.items()}
    elif known and known.target_s:
        target, at_most = measured(known.target_s, known.fixed_s), known.source == "given"
        words = f"passes measured on {known.device or 'this machine'}, without what a server adds"
        if at_most:
            words = "times given to dynatui profile, the same at every load"
        passes = {name: scaled(target, first_s) for name, first_s in known.draft_s.items() if first_s}
    else:
        raise ConfigError("the profile has no costs of passes; give --roofline DEVICE, or --step-ms and --draft-ms")
    passes |= dict.fromkeys(lookups, PassCost())
    return CostSource(words, at_most, {name: LoadCosts(target, cost) for name, cost in passes.items() if cost})
