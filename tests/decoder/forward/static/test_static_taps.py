"""Static passes of a target store the layer states that `LayerStates` of ordinary passes hold."""

from typing import Any

import numpy as np
import pytest
import torch

from decoder.forward.language_model import LanguageModel
from decoder.forward.taps import LayerStates
from decoder.session.cuda_graph.draft import DraftPart
from decoder.session.cuda_graph.heads import TappedTarget
from decoder.session.cuda_graph.slots import BEYOND, read_logits
from decoder.session.cuda_graph.verify import ancestors, tree_bias
from tests import tiny
from tests.decoder.family_models import static_of
from tests.eagle3_checkpoints import target

LAYERS = (0, 2, 7)
TEXT, DRAFTED = [5, 99, 7, 250, 12], [41, 60, 41, 7]
PARENTS = [0, 0, 0, 1]
SLOTS = 256


def tree_logits(side: DraftPart) -> torch.Tensor:
    """Logits of a tree after the text, whose rows go to the slots after the text."""
    places = torch.tensor([len(TEXT) + depth for depth in (0, 1, 1, 2)])
    slots = torch.arange(len(TEXT), len(TEXT) + len(DRAFTED))
    above = ancestors(torch.tensor(PARENTS), 3, torch.eye(len(DRAFTED)))
    return side.logits(torch.tensor(DRAFTED), places, slots, tree_bias(side, torch.arange(SLOTS), slots, above))


def ordinary(module: Any, name: str) -> torch.Tensor:
    """Layer states of the text and the tree, from ordinary passes."""
    states = LayerStates(LAYERS)
    model = LanguageModel.of_module(module, name).tapped(states)
    cache = model.new_cache(32)
    model.read(cache, TEXT)
    text = states.take(range(len(TEXT)))
    above = ancestors(torch.tensor(PARENTS), 3, torch.eye(len(DRAFTED)))
    positions = [len(TEXT) + depth for depth in (0, 1, 1, 2)]
    model.forward(cache, DRAFTED, positions, above.numpy().astype(np.bool_))
    return torch.cat((text, states.take(range(len(DRAFTED)))))


@pytest.mark.parametrize("family", ["neox", "llama"])
@torch.no_grad()
def test_states_are_stored_by_slot_and_logits_keep_their_bits(family: str) -> None:
    module = target(family)
    forward = static_of(module)
    tapped = TappedTarget(forward, forward.new_store(SLOTS + BEYOND), tiny.VOCABULARY, tiny.CONTEXT, LAYERS)
    plain = DraftPart(forward, forward.new_store(SLOTS + BEYOND), tiny.VOCABULARY, tiny.CONTEXT)
    found, expected = ((read_logits(side, TEXT), tree_logits(side), side.store) for side in (tapped, plain))
    assert all(map(torch.equal, found, expected))
    states = ordinary(module, family)
    torch.testing.assert_close(tapped.states[: len(states)], states, rtol=0, atol=1e-4)
    assert not tapped.states[len(states) :].any()


@torch.no_grad()
def test_an_accepted_path_moves_with_its_states() -> None:
    forward = static_of(target("llama"))
    side = TappedTarget(forward, forward.new_store(SLOTS + BEYOND), tiny.VOCABULARY, tiny.CONTEXT, LAYERS)
    read_logits(side, TEXT)
    tree_logits(side)
    first = len(TEXT)
    states, store = side.states.clone(), side.store.clone()
    side.move(torch.tensor([first + 2, first + 3]), torch.tensor([first + 1, first + 2]))
    assert torch.equal(side.states[first + 1 : first + 3], states[first + 2 : first + 4])
    assert torch.equal(side.store[:, :, :, first + 1 : first + 3], store[:, :, :, first + 2 : first + 4])
    assert torch.equal(side.states[: first + 1], states[: first + 1])


@torch.no_grad()
def test_a_static_form_that_the_host_drives_writes_layer_states_too() -> None:
    """Rounds whose trees are too large for fixed shapes need the head's states as well."""
    module, states = target("llama"), LayerStates(LAYERS)
    tapped = static_of(module).tapped(states)
    tapped.read(tapped.new_cache(32), TEXT)
    expected = ordinary(module, "llama")[: len(TEXT)]
    torch.testing.assert_close(states.take(range(len(TEXT))), expected, rtol=0, atol=1e-4)
