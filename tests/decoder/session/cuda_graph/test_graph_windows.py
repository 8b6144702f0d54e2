"""Device rounds beyond attention windows equal the host's; the host drives models with windows smaller than trees."""

from dataclasses import replace

import pytest

from decoder.engine import Engine
from decoder.forward.windows import SLIDING, Windows
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.session.cuda_graph.self_test import prepare_rounds
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.session.cuda_graph.static_shapes import CHUNKED, DEEPEST, SHORT, uncaptured
from decoder.tree_rules import Rules
from tests import tiny
from tests.decoder.any_family import built, config_of, engine_of
from tests.decoder.makers import TinyModels
from tests.decoder.session.cuda_graph.matching import match, recorded, records, refused

PROMPT = [(7 * place * place + 3) % 96 for place in range(tiny.WINDOW - 6)]
"""Token ids, fewer than the window, so that rounds start within the window and continue beyond it."""
METHODS: dict[str, Rules | None] = {
    "ar": None,
    "linear": Linear(5),
    "fixed": Fixed(depth=4, branching=2),
    "best": DynaTree(d0=2, d_max=6, rho_stop=0.02, tau=0.02, rho_deep=0.05, selection="best", n_max=15),
}


@pytest.mark.parametrize(
    ("name", "by_module", "method"),
    [
        *(("half-windows", False, method) for method in METHODS),
        ("windows", False, "best"),
        ("half-windows", True, "ar"),
        ("half-windows", True, "best"),
        ("windows", True, "linear"),
    ],
)
def test_every_round_is_that_of_the_host(tiny_models: TinyModels, name: str, method: str, *, by_module: bool) -> None:
    loaded = recorded(tiny_models.loaded(tiny_models.pair(name), "float64"), by_module=by_module)
    rounds = match(loaded, PROMPT, 40, METHODS[method])
    assert records(loaded) < len(rounds)


def test_texts_are_tried_before_rounds_are_trusted(tiny_models: TinyModels) -> None:
    loaded: Engine = tiny_models.loaded(tiny_models.pair("windows"), "float32")
    assert refused(replace(loaded, slots=GraphSlots(graphs=False))) is None


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({}, ""),
        ({SLIDING: DEEPEST + 1}, ""),
        ({SLIDING: DEEPEST}, SHORT),
        ({"chunked_attention": 8192}, CHUNKED),
    ],
)
def test_a_graph_takes_windows_in_which_each_tree_lies_whole(sizes: dict[str, int], reason: str) -> None:
    assert uncaptured(Windows(sizes, tuple(sizes))) == reason


@pytest.mark.parametrize("family", ["mistral", "gemma3_text", "llama4_text"])
def test_the_host_drives_rounds_of_models_with_other_windows(family: str) -> None:
    module = built(config_of(family))
    slots = GraphSlots(graphs=False)
    assert prepare_rounds(engine_of(module, module).pair, slots, [None]) == (
        CHUNKED if family == "llama4_text" else SHORT
    )
