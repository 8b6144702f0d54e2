"""Rules with which every tree has a given depth and number of rows, if the draft is certain of its guesses."""

from collections.abc import Sequence
from dataclasses import dataclass

from decoder.errors import ConfigError
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.run.config import RunConfig
from decoder.session.cuda_graph.static_shapes import MOST_NODES, Passes, fits, of_sizes
from decoder.tree_rules import tree_rule
from dynatui.lab.bench.contenders import BASELINE, Contender, own
from dynatui.lab.bench.machine import begin_peak

OVERALL = 1e-9
"""Path probability below which a node has no children; practically no node has so little."""


@dataclass(frozen=True)
class Size:
    """Tree of `depth` drafted levels, which is verified in `rows` rows: one for the root and one per drafted node."""

    depth: int
    rows: int

    @property
    def siblings(self) -> int:
        """Number of children of each node that has any, except that the last such node may have fewer."""
        return -(-(self.rows - 1) // self.depth)


def contenders(config: RunConfig, sizes: Sequence[Size]) -> list[Contender]:
    """Plain decoding and one contender for each tree size. Peak memory is measured in rounds only, not in prefill."""
    return [
        own(BASELINE, BASELINE, BASELINE, config, begin_peak),
        *(own(f"{size.depth}x{size.rows}", "tree", *run_of(size, config), begin_peak) for size in sizes),
    ]


def passes(config: RunConfig, sizes: Sequence[Size]) -> Passes:
    """Sizes of the passes in rounds with these trees, for CUDA graphs and compilation."""
    runs = (run_of(size, config) for size in sizes)
    rules = (tree_rule(run.rules(method)) for method, run in runs)
    return of_sizes(
        (rule for rule in rules if rule and fits(rule)), (size.rows for size in sizes if size.rows <= MOST_NODES)
    )


def refuse_wider(sizes: Sequence[Size], vocabulary: int) -> None:
    """Raises ConfigError for a size with which a node would have more children than the vocabulary has tokens."""
    for size in sizes:
        if size.siblings > vocabulary:
            raise ConfigError(
                f"no tree has {size.rows} rows on {size.depth} levels with a vocabulary of {vocabulary} tokens; "
                "give fewer rows or more levels"
            )


def run_of(size: Size, config: RunConfig) -> tuple[str, RunConfig]:
    """Method and parameters with which every tree has this size; raises ConfigError if no tree has it."""
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
