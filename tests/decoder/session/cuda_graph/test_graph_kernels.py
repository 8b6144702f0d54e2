"""A round launches few kernels, because a small kernel runs faster than the next one is launched."""

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import pytest
import torch
from transformers import GPTNeoXConfig, LlamaConfig

from decoder.forward.language_model import LanguageModel
from decoder.forward.static.static_forward import static_forward
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.sampling.truncation import DeviceTruncation
from decoder.session.cuda_graph.device_state import DeviceState
from decoder.session.cuda_graph.draft import DraftLayout, DraftPart, best_tokens, grow
from decoder.session.cuda_graph.static_shapes import Shape, bucket, levels, most_nodes, shape, slots
from decoder.session.cuda_graph.verify import verify
from decoder.system.device import without_gradients
from decoder.tree_rules import Rules
from decoder.verify.verifier import CoupledDeviceVerifier, DeviceVerifier, GreedyVerifier
from dynatui.lab.bench.shapes import Size, run_of
from tests import tiny
from tests.decoder.family_models import like_llama
from tests.fake_cuda.recording import record

CPU = torch.device("cpu")
TEXT = [7, 8, 9, 10]
GREEDY = GreedyVerifier()
EIGHT_BY_64 = run_of(Size(8, 64), RunConfig())[1].of(DynaTree)
VOCABULARY = 50304
"""Size of Pythia's vocabulary, so large that the most probable tokens are searched for in parts."""


@dataclass(frozen=True)
class Counted:
    """Numbers of operations that launch a kernel."""

    draft: int
    draft_passes: int
    """The part of `draft` in the draft model's forward passes."""
    verification: int
    target_pass: int


@pytest.fixture(scope="module")
def plain(sides: tuple[DraftPart, DraftPart]) -> Counted:
    """Counts of a greedy round of 8x64."""
    return counted(sides, EIGHT_BY_64)


@pytest.fixture(scope="module")
def sides() -> tuple[DraftPart, DraftPart]:
    return side("pythia-2.8b"), side("pythia-70m")


def side(name: str, dtype: torch.dtype = torch.float32) -> DraftPart:
    """A narrow model with the number of layers of the published model, and with nonzero biases as in trained models."""
    published = json.loads(files("dynatui.lab.bench").joinpath("shapes", f"{name}.json").read_text())
    narrow = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": VOCABULARY}
    layers = {"num_hidden_layers": published["num_hidden_layers"]}
    module = tiny.build(GPTNeoXConfig(**tiny._common(narrow | layers)), seed=1)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.normal_()
    return side_of(module.to(dtype))


def side_of(module: Any) -> DraftPart:
    forward = static_forward(LanguageModel.of_module(module, "narrow"))
    return DraftPart(forward, forward.new_store(1500), module.config.vocab_size, tiny.CONTEXT)


def pass_launches(side: DraftPart, rows: int) -> int:
    numbers, bias = torch.zeros(rows, dtype=torch.int64), torch.zeros(rows, 256, dtype=side.store.dtype)
    rotation = side.rotation(numbers)
    return record(lambda: side.rotated_logits(numbers, rotation, numbers, bias)).launches


def launched(sides: tuple[DraftPart, DraftPart], rules: Rules, verifier: DeviceVerifier) -> tuple[int, int]:
    """Numbers of kernels of a draft and of its verification."""
    target, draft = sides
    rule, state = rules.rule(), DeviceState(CPU, 1500)
    layout, rows = DraftLayout(shape(rule), VOCABULARY, CPU), bucket(most_nodes(rule))
    state.begin(TEXT, rule)
    with without_gradients():
        drafted = record(lambda: grow(draft, state, layout, slots(40 + layout.rows), verifier))
        below, read = levels(rows, layout.deepest), slots(40 + rows)
        verified = record(lambda: verify(target, draft, state, rows, below, read, verifier.choose))
    return drafted.launches, verified.launches


def counted(sides: tuple[DraftPart, DraftPart], rules: Rules) -> Counted:
    target, draft = sides
    layout, rows = DraftLayout(shape(rules.rule()), VOCABULARY, CPU), bucket(most_nodes(rules.rule()))
    drafted, verified = launched(sides, rules, GREEDY)
    with without_gradients():
        passes = sum(pass_launches(draft, width) for width in (layout.first, *layout.widths[1:]))
        return Counted(drafted, passes, verified, pass_launches(target, rows))


def test_a_round_of_8x64_is_few_kernels(plain: Counted) -> None:
    layer, around = 8, 3
    assert plain.draft_passes <= 8 * (6 * layer + around)
    assert plain.target_pass <= 32 * layer + around
    assert plain.draft - plain.draft_passes <= 139
    assert plain.verification - plain.target_pass <= 59
    assert plain.draft + plain.verification <= 865


def test_a_pass_in_bfloat16_has_the_layers_of_other_dtypes_and_two_kernels_around_them() -> None:
    singles, halves = (side("pythia-70m", dtype) for dtype in (torch.float32, torch.bfloat16))
    assert pass_launches(halves, 8) == pass_launches(singles, 8) + 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_of_shared_keys_is_ten_kernels_and_two_norms(dtype: torch.dtype) -> None:
    one, two = (
        side_of(tiny.build(like_llama(LlamaConfig, num_hidden_layers=layers), seed=1).to(dtype)) for layers in (1, 2)
    )
    rows = torch.zeros(8, 32, dtype=dtype)
    norm = record(lambda: torch.rms_norm(rows, (32,))).launches
    assert pass_launches(two, 8) - pass_launches(one, 8) == 10 + 2 * norm


@pytest.mark.parametrize(("truncates", "most"), [(False, 88), (True, 173)])
def test_sampling_adds_few_kernels_to_a_round_of_8x64(
    sides: tuple[DraftPart, DraftPart], plain: Counted, most: int, *, truncates: bool
) -> None:
    found = launched(sides, EIGHT_BY_64, CoupledDeviceVerifier(truncates=truncates))
    assert 0 < sum(found) - plain.draft - plain.verification <= most


@pytest.mark.parametrize(
    ("rules", "most"),
    [(DynaTree(), 186), (DynaTree(selection="best"), 181), (Linear(4), 65)],
    ids=["bfs", "best", "linear"],
)
def test_what_surrounds_the_passes_of_other_trees_is_few_kernels_too(
    sides: tuple[DraftPart, DraftPart], rules: Rules, most: int
) -> None:
    found = counted(sides, rules)
    assert found.draft - found.draft_passes <= most
    assert found.verification - found.target_pass <= 59


@pytest.mark.parametrize("vocabulary", [32003, 50277, 50304, 128256, 151643, 151936])
def test_the_best_tokens_take_few_kernels_in_a_large_vocabulary_of_any_size(vocabulary: int) -> None:
    layout = DraftLayout(Shape(8, (1, 8), best=True), vocabulary, CPU)
    logits, logprobs, tokens = torch.zeros(8, vocabulary), torch.zeros(8, 8), torch.zeros(8, 8, dtype=torch.int64)
    assert record(lambda: best_tokens(logits, layout, logprobs, tokens)).launches == 7 + (layout.rest > 0)


def test_the_truncation_of_a_level_takes_7_kernels() -> None:
    truncation = DeviceTruncation.of(torch.tensor([[1.0, 50.0, 0.9]], dtype=torch.float64), 100)
    logits = torch.zeros(8, 100)
    assert record(lambda: truncation.excluded(logits)).launches == 7


def test_views_and_memory_that_is_not_filled_are_no_kernels() -> None:
    numbers = torch.zeros(4, 4)
    work = record(lambda: [numbers.view(2, 8)[1].t(), numbers.new_empty(3), numbers.unbind(), numbers.expand(2, 4, 4)])
    assert work.launches == 0
    assert record(lambda: [numbers.add_(1), numbers + 1, torch.cat((numbers, numbers))]).launches == 3
