"""Rounds of pairs of published sizes on a fake device without values: what a steady round asks of device and host.

The device reports made-up trees, since without values there are none.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from decoder.engine import Engine
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.native import NativeModel
from decoder.forward.language_model import LanguageModel
from decoder.forward.static_forward import static_forward
from decoder.heads.eagle3 import Head, HeadShape
from decoder.models.pair import Pair
from decoder.models.tokenizer import TextTokenizer
from decoder.session.cuda_graph.device_state import LARGEST, LEVEL, LOGPROB, OUTCOME, OWN_LOGPROB, PARENT, REPORT, TOKEN
from decoder.session.cuda_graph.kernel_trial import kernels as all_kernels
from decoder.session.cuda_graph.kernel_trial import layer_kernels
from decoder.session.cuda_graph.operators import PLAIN
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.session.cuda_graph.static_shapes import DEEPEST, MOST_NODES
from decoder.session.protocol import Session
from decoder.system.device import Mailbox, Mark
from dynatui.lab.bench.shapes import _config, _random_module
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.tensors import CUDA, Device

HEAD = "head"
"""Name of an EAGLE-3 head in place of a draft's shape."""
TOKENS = 8
"""Number of different tokens in made-up trees."""


@dataclass
class Made:
    """Sizes of the trees that the device reports."""

    depth: int = 0
    rows: int = 1
    accepted: int = 0
    """Length of the accepted path."""

    def report(self) -> NDArray[np.float64]:
        """Report of a tree that is a chain of `depth` nodes, with further children of the root."""
        report = np.zeros(REPORT)
        numbers = report.view(np.int64)
        numbers[0] = 1 + self.accepted
        numbers[1 : DEEPEST + 2] = np.minimum(np.arange(DEEPEST + 1), self.accepted)
        numbers[DEEPEST + 2 : OUTCOME] = 1
        nodes, logprobs = (
            numbers[OUTCOME:LARGEST].reshape(-1, MOST_NODES),
            report[OUTCOME:LARGEST].reshape(-1, MOST_NODES),
        )
        node = np.arange(1, self.rows)
        nodes[LEVEL, 0] = 1
        nodes[PARENT, 1 : self.rows] = np.where(node <= self.depth, node - 1, 0)
        nodes[LEVEL, 1 : self.rows] = np.where(node <= self.depth, node + 1, 2)
        nodes[TOKEN, 1 : self.rows] = 1 + node % TOKENS
        logprobs[[LOGPROB, OWN_LOGPROB], 1 : self.rows] = -0.1
        return report


@contextmanager
def without_values(made: Made) -> Iterator[Device]:
    """A fake device without values, on which all drafts and verifications have the sizes of `made`."""

    def receive(_: Mailbox, arrival: Mark) -> NDArray[np.float64]:
        arrival.wait()
        return made.report()

    with pytest.MonkeyPatch.context() as patch, fake_cuda(values=False) as device:
        patch.setattr(Mailbox, "receive", receive)
        yield device


def engine_of(target: str, draft: str | None, dtype: torch.dtype, *, kernels: bool = False) -> Engine:
    """An engine of models with the sizes of these published shapes; called within `without_values`.

    `draft`: HEAD for an EAGLE-3 head, None for suffix lookup; `kernels`: whether all Triton kernels are used.
    """
    models = [_model(name, dtype) for name in (target, draft) if name and name != HEAD]
    parts: Mapping[str, Any] = all_kernels() if kernels else {}
    slots = GraphSlots(operators=replace(PLAIN, **parts))
    for model in models:
        form = static_forward(model)
        assert isinstance(form, NativeModel)
        slots.forms[model] = _with_kernels(form) if kernels else form
    context = min(model.context for model in models)
    pair = Pair(
        models[0],
        models[1] if len(models) > 1 else None,
        tokenizer=cast(TextTokenizer, None),
        eos=frozenset(),
        context=context,
        head=_head(target, dtype) if draft == HEAD else None,
    )
    return Engine(pair, slots=slots)


def _head(target: str, dtype: torch.dtype) -> Head:
    """A head with the sizes of those that are published for Llama 3.1."""
    layer = Architecture.of(_config(target))
    layout = HeadShape(layer, draft_vocabulary=32000, target_width=layer.hidden_size)
    with torch.device("meta"):
        head = Head("head", layout, layout.layers_of(layer.num_hidden_layers))
    weights = {
        name: torch.empty(weight.shape, dtype=dtype if weight.is_floating_point() else weight.dtype, device=CUDA)
        for name, weight in head.state_dict().items()
    }
    head.requires_grad_(requires_grad=False).load_state_dict(weights, assign=True)
    head.tokens, head.frequencies = torch.arange(layout.draft_vocabulary, device=CUDA), head.frequencies.to(CUDA)
    return head


def _with_kernels(form: NativeModel) -> NativeModel:
    return reduce(lambda plain, with_kernels: with_kernels(plain), layer_kernels().values(), form)


def _model(name: str, dtype: torch.dtype) -> LanguageModel:
    make: Callable[[torch.device], object] = partial(_random_module, name, _config(name), dtype, 0)
    return LanguageModel.of_module(make(CUDA), name)


@dataclass(frozen=True)
class Steady:
    """What one round asks for after the first rounds, which capture graphs."""

    requests: Mapping[str, int]
    """Requests of the host by kind; see `Device.log`."""
    eager: Mapping[str, int]
    """Operators that the host launches one by one, outside of graphs."""
    replayed: Mapping[str, int]
    """Operators in the replayed graphs, by name."""

    @property
    def operators(self) -> int:
        """Number of operators of the round."""
        return sum(self.replayed.values()) + sum(self.eager.values())


def steady(session: Session, device: Device, rounds: int = 4) -> Steady:
    """Decodes a few rounds of an open session and returns what the last one asked for."""
    session.prefill()
    for _ in range(rounds):
        device.clear()
        session.step(())
    replayed = Counter(launch.name for graph in device.replayed for launch in graph.launches)
    found = Steady(device.counts(), Counter(launch.name for launch in device.launches), replayed)
    session.close()
    return found
