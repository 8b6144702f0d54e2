"""Makes rounds on an accelerator ready: tried before any user's text depends on them, and compiled where asked.

Imported only where there is a device that repeats work from graphs.
"""

from collections.abc import Callable, Sequence

from decoder.config import PRESETS, Auto, Fixed, Linear, Rules, RunConfig, tree_rule
from decoder.decoding_path import STATIC, decoding_path
from decoder.engine import Engine
from decoder.session.cuda_graph.compiled import compile_pair
from decoder.session.cuda_graph.self_test import prepare_rounds
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.session.cuda_graph.static_shapes import Passes, passes

Report = Callable[[str], None]
TRIED: Sequence[Rules | None] = (None, Linear(2), Fixed(depth=2, branching=2), *PRESETS.values(), Auto())
"""The parameters of rounds that are tried."""


def try_rounds(engine: Engine, slots: GraphSlots, report: Report) -> None:
    """Finds out whether rounds run on the pair's accelerator, and says why if they do not."""
    report("trying rounds on the device")
    slots.refused = prepare_rounds(engine.pair, slots, TRIED)
    path = decoding_path(engine)
    if slots.refused:
        report(f"rounds are driven by the host, which is slower: on the device, {slots.refused}")
    elif path.name == STATIC:
        report(f"graphs run through a Hugging Face module, which is slower: {path.reason}")


def compile_rounds(engine: Engine, slots: GraphSlots, listed: Passes, report: Report) -> None:
    """Compiles the passes of rounds on the device where that is faster."""
    compile_pair(engine.pair, slots, TRIED, report, listed)


def passes_of(run: RunConfig) -> Passes:
    """The passes of all methods of a run."""
    return passes(tree_rule(run.parameters.get(name)) for name in run.methods)
