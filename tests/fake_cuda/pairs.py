"""Loaded pairs on a fake device with values."""

import copy
from dataclasses import replace

from decoder.engine import Engine
from decoder.forward.eagle3.head import Head
from decoder.forward.language_model import LanguageModel
from decoder.forward.static.hf import ModuleStatic
from decoder.forward.static.static_forward import static_forward
from decoder.session.cuda_graph.slots import GraphSlots
from tests.fake_cuda.tensors import CUDA


def on_fake_device(engine: Engine, *, by_module: bool = False) -> Engine:
    """The engine with copies of its models on the fake device and with CUDA graphs; the self-test is left out.

    Called within `fake_cuda`. `by_module`: passes run as Hugging Face modules.
    """
    slots, pair = GraphSlots(), engine.pair
    moved = {role: _moved(model) for role, model in pair.models.items()}
    for model in moved.values():
        slots.run(model, ModuleStatic(model.hf.module) if by_module else static_forward(model))
    head = _moved_head(pair.head) if isinstance(pair.head, Head) else None
    return replace(engine, pair=replace(pair, target=moved["target"], draft=moved.get("draft"), head=head), slots=slots)


def _moved_head(head: Head) -> Head:
    weights = {name: weight.to(CUDA) for name, weight in head.weights.items()}
    tokens = None if head.tokens is None else head.tokens.to(CUDA)
    return replace(head, weights=weights, embedding=head.embedding.to(CUDA), tokens=tokens)


def _moved(model: LanguageModel) -> LanguageModel:
    return LanguageModel.of_module(copy.deepcopy(model.hf.module).to(CUDA), model.name)
