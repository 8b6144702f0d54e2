"""Summary of samples: one row per contender, and comparisons of the best contenders of each kind.

If a contender's text differs from the text of `ar` in a token that must be equal, the prompt is left out of the
contender's speed. The difference is reported, with the result of a float32 pass that distinguishes a near tie from an
error. All functions are pure, except that an argument of type `Judge` runs this float32 pass.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from decoder.analysis.metrics import first_difference
from decoder.engine import Engine
from decoder.events import Figures
from decoder.forward import near_tie
from decoder.forward.near_tie import Verdict
from decoder.methods import METHODS
from dynatui.lab.bench.contenders import BASELINE, INEXACT, PROMPT_LOOKUP, is_adaptive
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.bench.samples import Measure, Samples, tokens_per_second
from dynatui.lab.bench.statistics import Median, estimate, ratios

Judge = Callable[[int, Sequence[int], tuple[int, int], bool], Verdict | None]
"""(prompt number, tokens before the difference, the two tokens, whether a foreign contender chose one of them) ->
near-tie verdict; None if the difference cannot be judged."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one contender on the prompts on which its text is right: for each prompt the median over repeats, then
    the median over prompts.
    """

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
    """Ratio of the speed to the speed of transformers' `generate` in its best setting."""
    tokens_per_round: float | None
    round_ms: float | None
    draft_ms: float | None
    verify_ms: float | None
    commit_ms: float | None
    host_ms: float | None
    host_share: float | None
    """Share of a round's time that is commit time or host time."""
    rest_share: float | None
    """Share of a round's time that is spent outside of the calls of target and draft."""
    target_forwards: float | None
    """Target passes per round; the next field has the draft passes."""
    draft_forwards: float | None
    peak_bytes: int | None
    bandwidth_share: float | None
    """Bytes of weights read per second in all forward passes, as a share of the copy bandwidth."""
    waits: float | None
    """Number of times per round that the host waits for the device; None if not counted."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of one contender, relative to the speed of the best of several other contenders."""

    name: str
    than: str
    """Name of the best of the other contenders."""
    of: int
    """Number of other contenders, among which `than` is the best."""
    kind: str
    ratio: Median


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """First difference between a contender's text and the text of `ar`; the contender has no speed on this prompt."""

    name: str
    prompt: int
    index: int
    near_tie: bool | None
    """Whether float32 finds a near tie; None if one text is a prefix of the other, or if there is no verdict."""
    gap: float | None
    """Difference of the two tokens' logits in float32, 0 or more."""
    judged: bool = True
    """Whether float32 could score the two tokens; this is impossible if the target is split over processes."""


@dataclass(frozen=True)
class Bandwidth:
    """Bytes of weights that a pass of each model reads, and the device's copy bandwidth."""

    target_bytes: int
    draft_bytes: int
    copy_bytes_per_s: float

    def share(self, figures: Figures) -> float | None:
        """Share of the memory bandwidth that a run reached; None if its forward passes are unknown."""
        if figures.target_forwards is None or figures.draft_forwards is None or not figures.decode_s:
            return None
        read = figures.target_forwards * self.target_bytes + figures.draft_forwards * self.draft_bytes
        return read / figures.decode_s / self.copy_bytes_per_s


def rows(samples: Samples, seed: int, bandwidth: Bandwidth | None) -> list[Row]:
    """One row for each contender."""
    return [_row(samples, name, seed, bandwidth) for name in samples.groups]


def comparisons(samples: Samples, seed: int) -> list[Comparison]:
    """All comparisons shown below the table: of `ar` with `generate`, of adaptive trees with other kinds of contenders,
    of methods with the same methods without one part, and of batch-invariant passes with ordinary passes.

    Each adaptive tree is compared with the best contender of each other kind, unless texts of that kind may differ from
    the text of `ar` by design.
    """
    trees = [name for name, group in samples.groups.items() if is_adaptive(group)]
    pairs: list[tuple[str, tuple[str, ...]]] = [(BASELINE, ("generate",))]
    others = tuple(
        name
        for name, method in METHODS.items()
        if method.sweep is not None and method.same_until is None and not is_adaptive(name)
    )
    kinds = ((BASELINE,), ("generate",), ("assisted",), (PROMPT_LOOKUP,), *((name,) for name in others), others)
    pairs += [(name, kind) for name in trees for kind in kinds]
    compared = []
    for name, kind in pairs:
        best = samples.best(kind, seed)
        ratio = samples.ratio(name, best, seed) if best else None
        if best and ratio:
            groups = [group for group in samples.groups.values() if group in kind]
            kinds_of = " and ".join(dict.fromkeys(groups))
            compared.append(Comparison(name=name, than=best, of=len(groups), kind=kinds_of, ratio=ratio))
    return compared + parts_of_methods(samples, seed) + costs_of_exactness(samples, seed)


def parts_of_methods(samples: Samples, seed: int) -> list[Comparison]:
    """Speed of each method in its default setting, relative to the speed of the method without one of its parts."""
    compared = []
    for name, group in samples.groups.items():
        if name != group and group in samples.groups and (ratio := samples.ratio(group, name, seed)):
            compared.append(Comparison(name=group, than=name, of=1, kind=name, ratio=ratio))
    return compared


def costs_of_exactness(samples: Samples, seed: int) -> list[Comparison]:
    """Rounds per second with batch-invariant passes, divided by rounds per second without them, on all prompts.

    The text with batch-invariant passes may differ from the text without them, and both are right in their own
    arithmetic; so tokens/s cannot be compared.
    """
    compared = []
    for name in (name for name, group in samples.groups.items() if group == INEXACT):
        exact = name.removesuffix(" ~")
        over, under = (samples.values(one, _rounds_per_second, samples.prompts) for one in (exact, name))
        if ratio := estimate(ratios(over, under), seed):
            compared.append(Comparison(name=exact, than=name, of=1, kind=f"{name}, rounds a second", ratio=ratio))
    return compared


def differences(samples: Samples, judge: Judge) -> list[Difference]:
    """One difference for each contender and prompt without a speed."""
    differing = []
    verdicts: dict[tuple[int, int, tuple[int, int], bool], Verdict | None] = {}
    for name, prompt, text in samples.differing():
        right = samples.texts[prompt]
        index = first_difference(text, right)
        verdict = None
        if index is not None:
            rivals = (right[index], text[index])
            foreign = name in samples.foreign
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
    """Judge that compares the target's float32 scores after these prompts; its verdict is None if the target is split
    over processes.
    """
    score = near_tie.Judge(engine.pair.target, engine.gumbel_noise()) if engine.pair.target.judgeable else None

    def judge(prompt: int, before: Sequence[int], rivals: tuple[int, int], by_module: bool) -> Verdict | None:  # noqa: FBT001 - a `Judge`
        return score([*prompts[prompt], *before], rivals, by_module=by_module) if score else None

    return judge


def per_round(key: str) -> Measure:
    """Measure that divides a figure by the number of rounds."""

    def measure(figures: Figures) -> float | None:
        value = getattr(figures, key)
        return None if value is None else value / figures.rounds

    return measure


def _row(samples: Samples, name: str, seed: int, bandwidth: Bandwidth | None) -> Row:
    same = samples.same(name)
    generate = samples.best(("generate",), seed)

    def middle(measure: Measure) -> float | None:
        median = estimate(samples.values(name, measure, same), seed)
        return median.value if median else None

    def ms(key: str) -> float | None:
        value = middle(per_round(key))
        return None if value is None else 1000 * value

    rest = estimate([[_rest(turn) for turn in samples.turns(name, prompt) if turn.seen] for prompt in same], seed)
    peak = middle(lambda figures: figures.peak_bytes)
    waits = estimate(
        [[_waits(turn) for turn in samples.turns(name, prompt) if turn.waits is not None] for prompt in same], seed
    )
    return Row(
        name=name,
        group=samples.groups[name],
        prompts=len(samples.prompts),
        same=None if name in samples.draws_alone | samples.by_design else len(same),
        by_design=name in samples.by_design,
        tokens_per_second=estimate(samples.values(name, tokens_per_second, same), seed),
        over_ar=samples.ratio(name, BASELINE, seed),
        over_generate=samples.ratio(name, generate, seed) if generate else None,
        tokens_per_round=middle(lambda figures: figures.tokens_per_round),
        round_ms=ms("decode_s"),
        draft_ms=ms("draft_s"),
        verify_ms=ms("verify_s"),
        commit_ms=ms("commit_s"),
        host_ms=ms("host_s"),
        host_share=middle(_host_share),
        rest_share=rest.value if rest else None,
        target_forwards=middle(per_round("target_forwards")),
        draft_forwards=middle(per_round("draft_forwards")),
        peak_bytes=None if peak is None else round(peak),
        bandwidth_share=middle(bandwidth.share) if bandwidth else None,
        waits=waits.value if waits else None,
    )


def _rounds_per_second(figures: Figures) -> float | None:
    return figures.rounds / figures.decode_s if figures.decode_s else None


def _host_share(figures: Figures) -> float | None:
    if figures.host_s is None or figures.commit_s is None or not figures.decode_s:
        return None
    return (figures.host_s + figures.commit_s) / figures.decode_s


def _rest(turn: Sample) -> float:
    return 1 - (turn.seen.models_s if turn.seen else 0.0) / turn.tally.decode_s


def _waits(turn: Sample) -> float:
    return (turn.waits or 0) / turn.tally.rounds
