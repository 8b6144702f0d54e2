"""Rounds with trees of given sizes after texts of given lengths: their cost, and its growth with the length.

The draft guesses at random, so nearly all rounds commit one token; tokens/s are computed for assumed numbers of tokens
per round. Rounds after a longer text are compared with rounds after the first text, in time and in multiply-adds.
Rounds are measured even if the decoded text differs from that of `ar`: after random text, near ties are common.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pandas as pd

from decoder.errors import ConfigError
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.run.config import RunConfig
from decoder.session.cuda_graph.static_shapes import MOST_NODES, Passes, fits, of_sizes
from decoder.tree_rules import tree_rule
from dynatui.lab.bench.contenders import BASELINE, Arithmetic, Contender, own
from dynatui.lab.bench.machine import begin_peak
from dynatui.lab.bench.summary import Bandwidth, Samples, known
from dynatui.lab.frame import Median, estimate

OVERALL = 1e-9
"""Path probability below which a node gets no children, so low that practically every node is above it."""


@dataclass(frozen=True)
class Size:
    """Tree of `depth` drafted levels, which is verified in `rows` rows: one for the root and one per drafted node."""

    depth: int
    rows: int

    @property
    def siblings(self) -> int:
        """Number of children of each node that is not a leaf; the last of these nodes may have fewer."""
        return -(-(self.rows - 1) // self.depth)


def sized_contenders(config: RunConfig, sizes: Sequence[Size]) -> list[Contender]:
    """Plain decoding and one contender for each tree size; the measured peak memory leaves out the prefill."""
    return [
        own(BASELINE, BASELINE, BASELINE, config, begin_peak),
        *(own(f"{size.depth}x{size.rows}", "tree", *run_of(size, config), begin_peak) for size in sizes),
    ]


def sized_passes(config: RunConfig, sizes: Sequence[Size]) -> Passes:
    """Sizes of the passes in rounds with these trees, for CUDA graphs and compilation."""
    runs = (run_of(size, config) for size in sizes)
    rules = (tree_rule(run.rules(method)) for method, run in runs)
    return of_sizes(
        (rule for rule in rules if rule and fits(rule)), (size.rows for size in sizes if size.rows <= MOST_NODES)
    )


def refuse_wider(sizes: Sequence[Size], vocabulary: int) -> None:
    """Raises ConfigError if a tree of one of these sizes has a node with more children than there are tokens."""
    for size in sizes:
        if size.siblings > vocabulary:
            raise ConfigError(
                f"no tree has {size.rows} rows on {size.depth} levels with a vocabulary of {vocabulary} tokens; "
                "give fewer rows or more levels"
            )


def run_of(size: Size, config: RunConfig) -> tuple[str, RunConfig]:
    """Method and parameters with which every tree has this size; raises ConfigError if no tree can have this size."""
    depth, drafted = size.depth, size.rows - 1
    if not 1 <= depth <= drafted:
        raise ConfigError(
            f"no tree has {depth} levels in {size.rows} rows, one of which is the root; give DxN with D from 1 to N-1"
        )
    if depth == 1:
        return "fixed", config.with_rules("fixed", Fixed(depth=1, branching=drafted, tau=0.0, n_max=drafted))
    rules = DynaTree(
        d0=depth - 1,
        d_max=depth,
        branching=(size.siblings,) * 3,
        rho_stop=OVERALL,
        rho_deep=OVERALL,
        tau=0.0,
        n_max=drafted,
        selection="best",
        history=False,
    )
    return "dynatree", config.with_rules("dynatree", rules)


LENGTHS = (1.0, 2.0, 3.0, 4.0, 6.0, 7.08)
"""Assumed numbers of tokens per round, for which tokens/s are computed; 7.08 is from the paper (v4, table 3)."""


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a round with one tree size after a text of one length: the mean over the rounds of a turn, then the
    median over repeats.
    """

    name: str
    context: int
    """Number of tokens of the text before the first round."""
    rows: float
    """Mean number of verified rows per round."""
    levels: float
    """Mean number of draft forward passes per round."""
    round_ms: Median
    draft_ms: float
    level_ms: float | None
    verify_ms: float
    commit_ms: float
    host_ms: float
    bandwidth_share: float | None
    waits: float | None
    """Number of times per round that the host waits for the device; None if not counted."""
    tokens_per_second: dict[float, float]
    """Tokens/s by assumed number of tokens per round; only for numbers that a tree of this size can commit."""
    multiply_adds: float | None
    """Multiply-adds of both models in a round; None if the models' calls were not counted."""
    kv_bytes: int | None
    """Allocated bytes of both models' KV caches; None if unknown."""
    peak_bytes: int
    """Peak memory during the rounds, weights included: of the device on CUDA, of the process on a CPU."""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Costs of rounds after a longer text, divided by the costs after the first text; medians over repeats."""

    name: str
    context: int
    over: int
    """Length of the first text, in tokens."""
    round: Median
    level: float | None
    verify: float
    multiply_adds: float | None
    beyond: Median | None
    """Growth of the round's time, divided by the growth of the round's multiply-adds."""
    kv_bytes: int | None
    """Increase of the KV caches since the first text, in bytes; `peak_bytes` is the increase of the peak memory."""
    peak_bytes: int


def rounds(
    samples: Samples, contexts: Sequence[int], seed: int, arithmetic: Arithmetic, bandwidth: Bandwidth | None
) -> list[Rounds]:
    """One row for each text length and contender."""
    frame = _frame(samples, arithmetic, bandwidth)
    return [
        _row(name, contexts[prompt], frame.loc[prompt, name], seed)
        for prompt in samples.prompts
        for name in samples.groups
    ]


def growth(samples: Samples, contexts: Sequence[int], seed: int, arithmetic: Arithmetic) -> list[Growth]:
    """One row for each contender and each text length except the first."""
    frame = _frame(samples, arithmetic, None)
    first, *others = samples.prompts
    return [
        _grown(name, (contexts[first], contexts[prompt]), frame.loc[first, name], frame.loc[prompt, name], seed)
        for name in samples.groups
        for prompt in others
    ]


def _frame(samples: Samples, arithmetic: Arithmetic, bandwidth: Bandwidth | None) -> pd.DataFrame:
    """Figures of all turns, indexed by prompt, contender and repeat; unknown times, counts and peaks are 0."""
    unknown = ("draft_s", "verify_s", "commit_s", "host_s", "drafted", "draft_forwards", "peak_bytes")
    frame = samples.frame.fillna(dict.fromkeys(unknown, 0.0))
    work = [arithmetic.multiply_adds(seen.target, seen.draft) if seen else None for seen in frame.seen]
    made = frame.assign(
        level_s=frame.draft_s / frame.draft_forwards.where(frame.draft_forwards > 0),
        multiply_adds=pd.Series(work, dtype="float64") / frame.rounds,
        bandwidth_share=bandwidth.shares(samples.frame) if bandwidth else float("nan"),
    )
    return made.drop(columns=["has_speed", "seen"]).set_index(["prompt", "lane", "repeat"]).sort_index()


def _row(name: str, context: int, turns: pd.DataFrame, seed: int) -> Rounds:
    first, middle = turns.iloc[0], turns.median()
    ms = {f"{part}_ms": 1000 * float(middle[f"{part}_s"]) for part in ("draft", "verify", "commit", "host")}
    round_ms = _median(1000 * turns.round_s, seed)
    levels = float(first.draft_forwards)
    return Rounds(
        name=name,
        context=context,
        rows=1 + float(first.drafted),
        levels=levels,
        round_ms=round_ms,
        **ms,
        level_ms=known(1000 * middle.level_s),
        bandwidth_share=known(middle.bandwidth_share),
        waits=known(middle.waits),
        tokens_per_second={length: 1000 * length / round_ms.value for length in LENGTHS if length <= levels + 1},
        multiply_adds=known(middle.multiply_adds),
        kv_bytes=_bytes(first.kv_bytes),
        peak_bytes=round(middle.peak_bytes),
    )


def _grown(name: str, contexts: tuple[int, int], short: pd.DataFrame, long: pd.DataFrame, seed: int) -> Growth:
    """Growth from the turns `short` to the turns `long` of one contender, paired by repeat."""
    pairs = short.index.intersection(long.index)
    short, long = short.loc[pairs], long.loc[pairs]
    grown, more = long / short.where(short != 0), long - short
    beyond = (grown.round_s / grown.multiply_adds).dropna()
    kept = more.kv_bytes.dropna()
    return Growth(
        name=name,
        context=contexts[1],
        over=contexts[0],
        round=_median(grown.round_s, seed),
        level=known(grown.level_s.median()),
        verify=float(grown.verify_s.median()),
        multiply_adds=known(grown.multiply_adds.median()),
        beyond=estimate([beyond], seed),
        kv_bytes=_bytes(kept.iloc[0]) if len(kept) else None,
        peak_bytes=round(more.peak_bytes.median()),
    )


def _median(values: pd.Series, seed: int) -> Median:
    middle = estimate([values], seed)
    assert middle is not None, "every repeat has a round"  # noqa: S101 - a programmer's mistake
    return middle


def _bytes(value: float) -> int | None:
    return None if pd.isna(value) else round(value)
