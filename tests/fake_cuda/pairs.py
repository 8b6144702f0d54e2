"""Loaded pairs on a fake device with values."""

import copy
from dataclasses import replace

from decoder.engine import Engine
from decoder.forward.language_model import LanguageModel
from decoder.forward.static_forward import static_forward
from decoder.forward.static_hf import ModuleStatic
from decoder.heads.eagle3 import Head
from decoder.session.cuda_graph.slots import GraphSlots
from tests.fake_cuda.tensors import CUDA


def on_fake_device(engine: Engine, *, by_module: bool = False) -> Engine:
    """The engine with copies of its models on the fake device and with CUDA graphs; the self-test is left out.

    Called within `fake_cuda`. `by_module`: passes run as Hugging Face modules.
    """
    slots, pair = GraphSlots(), engine.pair
    head = _moved_head(pair.head) if isinstance(pair.head, Head) else None
    moved = replace(pair, target=_moved(pair.target), draft=pair.draft and _moved(pair.draft), head=head)
    for model in moved.models.values():
        slots.forms[model] = ModuleStatic(model.hf.module) if by_module else static_forward(model)
    return replace(engine, pair=moved, slots=slots)


def _moved_head(head: Head) -> Head:
    return copy.deepcopy(head).to(CUDA)


def _moved(model: LanguageModel) -> LanguageModel:
    return LanguageModel.of_module(copy.deepcopy(model.hf.module).to(CUDA), model.name)
