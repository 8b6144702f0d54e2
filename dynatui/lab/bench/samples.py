"""Samples of complete blocks, and a data frame of all turns, from which speeds and their ratios are computed. A text is
right if it equals the text of `ar`, except in tokens that may differ by design; wrong texts do not count for speeds.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from decoder.analysis.metrics import figures
from decoder.events import Figures
from decoder.sampling.settings import Sampling
from dynatui.lab.bench.contenders import BASELINE, Arithmetic, Contender
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.frame import Median, median, quotients, series

SPEED = "tokens_per_second"


class Samples:
    """Samples of all blocks (prompt, repeat) that have a sample of every contender."""

    def __init__(
        self, samples: Iterable[Sample], contenders: Sequence[Contender], *, sampling: Sampling | None = None
    ) -> None:
        """Groups samples by block; at a temperature above 0, texts of foreign contenders are not compared with `ar`."""
        self.groups: dict[str, str] = {contender.name: contender.group for contender in contenders}
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

    def both(self, one: str, other: str) -> list[int]:
        others = set(self.same(other))
        return [prompt for prompt in self.same(one) if prompt in others]

    @cached_property
    def _timed(self) -> pd.DataFrame:
        frame = turn_frame(self)
        return frame[frame.has_speed]

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


PER_ROUND = {"round_s": "decode_s"} | {
    key: key for key in ("draft_s", "verify_s", "commit_s", "host_s", "target_forwards", "draft_forwards", "drafted")
}
"""Columns of figures per round, each with the name of the figure that is divided by the number of rounds."""
AS_THEY_ARE = (SPEED, "tokens_per_round", "acceptance_rate", "rounds", "peak_bytes")
KEYS = ["lane", "prompt", "repeat", "has_speed"]


@dataclass(frozen=True)
class Bandwidth:
    """Bytes of weights that a pass of each model reads, and the device's copy bandwidth."""

    target_bytes: int
    draft_bytes: int
    copy_bytes_per_s: float

    def share(self, figures: Figures) -> float | None:
        """Bytes of weights read per second, as a share of the copy bandwidth; None if a pass count is unknown."""
        if figures.target_forwards is None or figures.draft_forwards is None or not figures.decode_s:
            return None
        read = figures.target_forwards * self.target_bytes + figures.draft_forwards * self.draft_bytes
        return read / figures.decode_s / self.copy_bytes_per_s


def turn_frame(
    samples: Samples, bandwidth: Bandwidth | None = None, arithmetic: Arithmetic | None = None
) -> pd.DataFrame:
    """Turns of all complete blocks, in the order of repeats. The column `lane` names the contender; `has_speed` tells
    whether all texts of this contender on the prompt are right.
    """
    has_speed = {name: samples.same(name) for name in samples.groups}
    rows = [
        (turn.contender, turn.prompt, turn.repeat, turn.prompt in has_speed[turn.contender]) for turn in samples.all()
    ]
    columns = [_figures(turn, bandwidth, arithmetic) for turn in samples.all()]
    frame = pd.concat([pd.DataFrame(rows, columns=KEYS), pd.DataFrame(columns, dtype="float64")], axis=1)
    return frame.sort_values("repeat", kind="stable", ignore_index=True)


def known(value: float) -> float | None:
    """Value of a data frame, with None in place of NaN."""
    return None if pd.isna(value) else float(value)


def _figures(turn: Sample, bandwidth: Bandwidth | None, arithmetic: Arithmetic | None) -> dict[str, float | None]:
    whole, seen = figures(turn.tally, None), turn.seen
    work = arithmetic.multiply_adds(seen.target, seen.draft) if arithmetic and seen else None
    known = whole.host_s is not None and whole.commit_s is not None and whole.decode_s
    return {
        **{column: getattr(whole, column) for column in AS_THEY_ARE},
        **{column: _over(getattr(whole, key), whole.rounds) for column, key in PER_ROUND.items()},
        "rounds_per_second": _over(whole.rounds, whole.decode_s),
        "host_share": ((whole.host_s or 0) + (whole.commit_s or 0)) / whole.decode_s if known else None,
        "rest_share": 1 - seen.models_s / turn.tally.decode_s if seen else None,
        "bandwidth_share": bandwidth.share(whole) if bandwidth else None,
        "waits": _over(turn.waits, whole.rounds),
        "multiply_adds": _over(work, whole.rounds),
        "kv_bytes": turn.kv_bytes,
    }


def _over(value: float | None, count: float) -> float | None:
    return None if value is None or not count else value / count
