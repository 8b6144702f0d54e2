"""Summary of samples: one row per contender, and comparisons of the best contenders of each kind.

If a contender's text differs from the text of `ar` in a token that must be equal, the prompt is left out of the
contender's speed. The difference is reported with a verdict, near tie or error. All functions are pure, except that an
argument of type `Judge` runs a float32 forward pass for this verdict.
"""

from collections.abc import Callable, Sequence

import msgspec

from decoder.analysis.metrics import first_difference
from decoder.engine import Engine
from decoder.forward import near_tie
from decoder.forward.near_tie import Verdict
from decoder.methods import METHODS
from dynatui.lab.bench.contenders import BASELINE, INEXACT, PROMPT_LOOKUP, is_adaptive
from dynatui.lab.bench.samples import Bandwidth, Samples, known, turn_frame
from dynatui.lab.frame import Median, median, quotients

Judge = Callable[[int, Sequence[int], tuple[int, int], bool], Verdict | None]
"""(prompt number, tokens before the difference, the two tokens, whether a foreign contender chose one of them) ->
near-tie verdict; None if the difference cannot be judged."""
PARTS = ("round", "draft", "verify", "commit", "host")
COUNTS = ("host_share", "rest_share", "target_forwards", "draft_forwards", "peak_bytes", "bandwidth_share", "waits")
MEDIANS = {key: key for key in ("tokens_per_round", *COUNTS)} | {f"{part}_ms": f"{part}_s" for part in PARTS}
"""Column of the data frame for each field of `Row` that is a median over prompts of medians over repeats."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one contender; medians leave out prompts on which a text wrongly differs from the text of `ar`."""

    name: str
    group: str
    prompts: int
    same: int | None
    """Number of prompts on which the text equals the text of `ar` in every repeat; None if texts may differ."""
    by_design: bool = False
    """Whether some of the contender's texts differ from the text of `ar` only in tokens that may differ by design."""
    tokens_per_second: Median | None
    over_ar: Median | None
    over_generate: Median | None
    """Speed relative to transformers' `generate` in the fastest of its settings."""
    tokens_per_round: float | None
    round_ms: float | None
    draft_ms: float | None
    verify_ms: float | None
    commit_ms: float | None
    host_ms: float | None
    host_share: float | None
    """Share of a round's time that is commit time or host time."""
    rest_share: float | None
    """Share of a round's time outside of the calls of target and draft."""
    target_forwards: float | None
    """Target passes per round; `draft_forwards` has the draft passes per round."""
    draft_forwards: float | None
    peak_bytes: int | None
    bandwidth_share: float | None
    """Bytes of weights read per second in all forward passes, as a share of the copy bandwidth."""
    waits: float | None
    """Number of times per round that the host waits for the device; None if not counted."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of contender `name` relative to the speed of `than`, the fastest of `of` contenders of the kind `kind`."""

    name: str
    than: str
    of: int
    kind: str
    ratio: Median


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """First difference between a contender's text and the text of `ar`; the contender has no speed on this prompt."""

    name: str
    prompt: int
    index: int
    near_tie: bool | None
    """Whether the difference is a near tie; None if one text is a prefix of the other, or if `judged` is False."""
    gap: float | None
    """Absolute difference of the two tokens' scores in float32; None if `near_tie` is None."""
    judged: bool = True
    """False if the two tokens could not be scored in float32, because the target is split over processes."""


def rows(samples: Samples, seed: int, bandwidth: Bandwidth | None) -> list[Row]:
    frame = turn_frame(samples, bandwidth)
    by_prompt = frame[frame.has_speed].groupby(["lane", "prompt"])[[*MEDIANS.values()]].median()
    medians = by_prompt.groupby("lane").median().reindex(samples.groups)
    generate = samples.best(("generate",), seed)

    def figure(name: str, key: str, column: str) -> float | None:
        value = known(medians.at[name, column] * (1000 if key.endswith("_ms") else 1))
        return round(value) if value is not None and key == "peak_bytes" else value

    return [
        Row(
            name=name,
            group=group,
            prompts=len(samples.prompts),
            same=None if name in samples.draws_alone | samples.by_design else len(samples.same(name)),
            by_design=name in samples.by_design,
            tokens_per_second=samples.speed(name, seed),
            over_ar=samples.ratio(name, BASELINE, seed),
            over_generate=samples.ratio(name, generate, seed) if generate else None,
            **{key: figure(name, key, column) for key, column in MEDIANS.items()},  # type: ignore[arg-type]
        )
        for name, group in samples.groups.items()
    ]


def comparisons(samples: Samples, seed: int) -> list[Comparison]:
    """Comparisons of `ar` with `generate`, of adaptive trees with other kinds of contenders, of methods with the same
    methods without one part, and of batch-invariant passes with ordinary passes.

    Each adaptive tree is compared with the best contender of each other kind, unless texts of that kind may differ from
    the text of `ar` by design.
    """
    trees = [name for name, group in samples.groups.items() if is_adaptive(group)]
    others = tuple(
        name
        for name, method in METHODS.items()
        if method.sweep is not None and method.same_until is None and not is_adaptive(name)
    )
    kinds = ((BASELINE,), ("generate",), ("assisted",), (PROMPT_LOOKUP,), *((name,) for name in others), others)
    compared = []
    for name, kind in [(BASELINE, ("generate",)), *((name, kind) for name in trees for kind in kinds)]:
        best = samples.best(kind, seed)
        ratio = samples.ratio(name, best, seed) if best else None
        if best and ratio:
            groups = [group for group in samples.groups.values() if group in kind]
            kinds_of = " and ".join(dict.fromkeys(groups))
            compared.append(Comparison(name=name, than=best, of=len(groups), kind=kinds_of, ratio=ratio))
    for name, group in samples.groups.items():  # a method over the same method without one part
        if name != group and group in samples.groups and (ratio := samples.ratio(group, name, seed)):
            compared.append(Comparison(name=group, than=name, of=1, kind=name, ratio=ratio))
    return compared + _costs_of_exactness(samples, seed)


def _costs_of_exactness(samples: Samples, seed: int) -> list[Comparison]:
    """Rounds per second with batch-invariant passes, divided by rounds per second with ordinary passes.

    Tokens/s cannot be compared, because the two kinds of passes may give different texts, and both texts are right.
    """
    compared, frame = [], turn_frame(samples)
    for name in (name for name, group in samples.groups.items() if group == INEXACT):
        exact = name.removesuffix(" ~")
        if ratio := median(quotients(frame, exact, name, "rounds_per_second"), seed):
            compared.append(Comparison(name=exact, than=name, of=1, kind=f"{name}, rounds a second", ratio=ratio))
    return compared


def differences(samples: Samples, judge: Judge) -> list[Difference]:
    """First difference of each contender on each prompt on which the contender has no speed."""
    differing = []
    verdicts: dict[tuple[int, int, tuple[int, int], bool], Verdict | None] = {}
    for name, prompt, text in samples.differing():
        right = samples.texts[prompt]
        index = first_difference(text, right)
        verdict = None
        if index is not None:
            rivals, foreign = (right[index], text[index]), name in samples.foreign
            key = (prompt, index, rivals, foreign)
            if key not in verdicts:
                verdicts[key] = judge(prompt, right[:index], rivals, foreign)
            verdict = verdicts[key]
        differing.append(
            Difference(
                name=name,
                prompt=prompt,
                index=min(len(text), len(right)) if index is None else index,
                near_tie=verdict.near_tie if verdict else None,
                gap=verdict.gap if verdict else None,
                judged=verdict is not None or index is None,
            )
        )
    return differing


def near_tie_judge(engine: Engine, prompts: Sequence[Sequence[int]]) -> Judge:
    """Judge that scores tokens with the target in float32; it returns None if the target is split over processes."""
    score = near_tie.Judge(engine.pair.target, engine.gumbel_noise()) if engine.pair.target.judgeable else None

    def judge(prompt: int, before: Sequence[int], rivals: tuple[int, int], by_module: bool) -> Verdict | None:  # noqa: FBT001 - a `Judge`
        return score([*prompts[prompt], *before], rivals, by_module=by_module) if score else None

    return judge
