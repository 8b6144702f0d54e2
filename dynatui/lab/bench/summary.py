"""Samples of complete blocks, a data frame of all turns, and their summary: one row per contender, and comparisons of
the best contenders of each kind.

If a contender's text differs from the text of `ar` in a token that must be equal, the prompt is left out of the
contender's speed. The difference is reported with a verdict, near tie or error. All functions are pure, except that an
argument of type `Judge` runs a float32 forward pass for this verdict.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import msgspec
import pandas as pd
from msgspec import structs

from decoder.analysis.metrics import figures, first_difference
from decoder.engine import Engine
from decoder.forward import near_tie
from decoder.forward.near_tie import Verdict
from decoder.methods import METHODS
from decoder.sampling.settings import Sampling
from dynatui.lab.bench.contenders import BASELINE, INEXACT, PROMPT_LOOKUP, Contender, is_adaptive
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.frame import Median, frame, median, quotients, series

SPEED = "tokens_per_second"
PER_ROUND = ["draft_s", "verify_s", "commit_s", "host_s", "target_forwards", "draft_forwards", "drafted", "waits"]
KEYS = ["lane", "prompt", "repeat", "has_speed", "seen"]
WHOLE_TEXTS = [SPEED, "tokens_per_round", "acceptance_rate", "rounds", "decode_s", "models_s", "kv_bytes", "peak_bytes"]
"""Columns of `Samples.frame` with figures of whole texts; those in `PER_ROUND` are divided by the number of rounds."""


class Samples:
    """Samples of all blocks (prompt, repeat) that have a sample of every contender."""

    def __init__(
        self, samples: Iterable[Sample], contenders: Sequence[Contender], *, sampling: Sampling | None = None
    ) -> None:
        """Groups samples by block; at a temperature above 0, texts of foreign contenders are not compared with `ar`."""
        self.groups = {contender.name: contender.group for contender in contenders}
        self.foreign = {contender.name for contender in contenders if contender.foreign}
        self.draws_alone = self.foreign if sampling and not sampling.greedy else frozenset[str]()
        """Contenders whose texts are not compared with the texts of `ar`."""
        blocks: defaultdict[tuple[int, int], dict[str, Sample]] = defaultdict(dict)
        for sample in samples:
            blocks[sample.repeat, sample.prompt][sample.contender] = sample
        self._blocks = {at: block for at, block in blocks.items() if block.keys() == self.groups.keys()}
        self.prompts = sorted({prompt for _, prompt in self._blocks})
        self.texts = {prompt: self.turns(BASELINE, prompt)[0].tally.tokens for prompt in self.prompts}
        """Text of `ar`, the reference, by prompt."""
        compared = (turn for turn in self.all() if turn.contender not in self.draws_alone and self.is_right(turn))
        self.by_design = {turn.contender for turn in compared if turn.tally.tokens != self.texts[turn.prompt]}
        """Contenders with a text that differs from the text of `ar`, but only in tokens that may differ by design."""

    def same(self, name: str) -> list[int]:
        """Prompts on which a contender has a speed, because its texts are right in all repeats."""
        return [prompt for prompt in self.prompts if all(map(self.is_right, self.turns(name, prompt)))]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Turns in the order of repeats. The column `lane` names the contender; `has_speed` tells whether all texts of
        this contender on the prompt are right.
        """
        has_speed = {name: self.same(name) for name in self.groups}
        rows = (
            {
                "lane": turn.contender,
                "prompt": turn.prompt,
                "repeat": turn.repeat,
                "has_speed": turn.prompt in has_speed[turn.contender],
                "seen": turn.seen,
                "models_s": turn.seen and turn.seen.models_s,
                "waits": turn.waits,
                "kv_bytes": turn.kv_bytes,
                **structs.asdict(figures(turn.tally, None)),
            }
            for turn in self.all()
        )
        numbers = [*WHOLE_TEXTS, *PER_ROUND]
        made = frame(rows, numbers)[[*KEYS, *numbers]]
        shares = {
            "round_s": made.decode_s / made.rounds,
            "rounds_per_second": made.rounds / made.decode_s,
            "host_share": (made.host_s + made.commit_s) / made.decode_s,
            "rest_share": 1 - made.models_s / made.decode_s,
        }
        per_round = made[PER_ROUND].div(made.rounds, axis="index")
        return made.assign(**shares, **per_round).sort_values("repeat", kind="stable", ignore_index=True)

    @cached_property
    def _timed(self) -> pd.DataFrame:
        return self.frame[self.frame.has_speed]

    def speed(self, name: str, seed: int) -> Median | None:
        return median(series(self._timed, SPEED, lane=name), seed)

    def ratio(self, name: str, than: str, seed: int) -> Median | None:
        """Speed of `name` divided by the speed of `than`, on the prompts on which both contenders have a speed."""
        return median(quotients(self._timed, name, than, SPEED), seed)

    def best(self, groups: Sequence[str], seed: int) -> str | None:
        """Contender with the highest speed relative to `ar` in these groups; None if no contender has a speed."""
        speeds = {name: self.ratio(name, BASELINE, seed) for name, group in self.groups.items() if group in groups}
        known = {name: speed.value for name, speed in speeds.items() if speed is not None}
        return max(known, key=lambda name: known[name]) if known else None

    def differing(self) -> Iterable[tuple[str, int, Sequence[int]]]:
        """Yields (contender, prompt, first wrong text) for each contender and prompt with a wrong text."""
        for name in self.groups:
            for prompt in self.prompts:
                wrong = (turn.tally.tokens for turn in self.turns(name, prompt) if not self.is_right(turn))
                if other := next(wrong, None):
                    yield name, prompt, other

    def all(self) -> list[Sample]:
        """Samples of all complete blocks, one block after the other."""
        return [sample for block in self._blocks.values() for sample in block.values()]

    def turns(self, name: str, prompt: int) -> list[Sample]:
        """Samples of a contender on one prompt, in the order of repeats."""
        return [block[name] for (_, which), block in sorted(self._blocks.items()) if which == prompt]

    def until(self, turn: Sample) -> int | None:
        """Number of leading tokens that must equal the tokens of `ar`; None if all tokens may differ."""
        return None if turn.contender in self.draws_alone else turn.same_until

    def is_right(self, turn: Sample) -> bool:
        until = self.until(turn)
        return until is None or turn.tally.tokens[:until] == self.texts[turn.prompt][:until]


def known(value: float) -> float | None:
    """Value of a data frame, with None in place of NaN."""
    return None if pd.isna(value) else float(value)


@dataclass(frozen=True)
class Bandwidth:
    """Bytes of weights that a pass of each model reads, and the device's copy bandwidth."""

    target_bytes: int
    draft_bytes: int
    copy_bytes_per_s: float

    def shares(self, turns: pd.DataFrame) -> pd.Series:
        """Bytes of weights read per second, as a share of the copy bandwidth; NaN if a pass count is unknown."""
        read = turns.target_forwards * self.target_bytes + turns.draft_forwards * self.draft_bytes
        return read / turns.round_s.where(turns.round_s > 0) / self.copy_bytes_per_s


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
    turns = samples.frame.assign(bandwidth_share=bandwidth.shares(samples.frame) if bandwidth else float("nan"))
    by_prompt = turns[turns.has_speed].groupby(["lane", "prompt"])[[*MEDIANS.values()]].median()
    medians = by_prompt.groupby("lane").median().reindex(samples.groups)
    generate = samples.best(("generate",), seed)

    def figure(name: str, key: str, column: str) -> float | None:
        value = known(medians.loc[name, column] * (1000 if key.endswith("_ms") else 1))
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
    """`ar` against `generate`; each adaptive tree against the best contender of each other kind; each method against
    its ablations, which lack one part; batch-invariant against ordinary passes.

    An adaptive tree is not compared with kinds whose texts may differ from the text of `ar` by design.
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
    compared = []
    for name in (name for name, group in samples.groups.items() if group == INEXACT):
        exact = name.removesuffix(" ~")
        if ratio := median(quotients(samples.frame, exact, name, "rounds_per_second"), seed):
            compared.append(Comparison(name=exact, than=name, of=1, kind=f"{name}, rounds a second", ratio=ratio))
    return compared


def differences(samples: Samples, judge: Judge) -> list[Difference]:
    """First difference of each contender on each prompt on which the contender has no speed."""
    verdict = cache(lambda prompt, index, *others: judge(prompt, samples.texts[prompt][:index], *others))

    def difference(name: str, prompt: int, text: Sequence[int]) -> Difference:
        right = samples.texts[prompt]
        index = first_difference(text, right)
        if index is None:
            shorter = min(len(text), len(right))
            return Difference(name=name, prompt=prompt, index=shorter, near_tie=None, gap=None)
        found = verdict(prompt, index, (right[index], text[index]), name in samples.foreign)
        return Difference(
            name=name,
            prompt=prompt,
            index=index,
            near_tie=found.near_tie if found else None,
            gap=found.gap if found else None,
            judged=found is not None,
        )

    return [difference(*each) for each in samples.differing()]


def near_tie_judge(engine: Engine, prompts: Sequence[Sequence[int]]) -> Judge:
    """Judge that scores tokens with the target in float32; it returns None if the target is split over processes."""
    if not engine.pair.target.judgeable:
        return lambda *_: None
    score = near_tie.Judge(engine.pair.target, engine.gumbel_noise())
    return lambda prompt, before, rivals, foreign: score([*prompts[prompt], *before], rivals, by_module=foreign)
