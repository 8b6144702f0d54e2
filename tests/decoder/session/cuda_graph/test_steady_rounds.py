"""What a steady round asks of device and host, for pairs of published sizes: operators, replays, copies, waits.

Counted on the fake device without values, with all Triton kernels and with plain operators. A round launches few
kernels, because a small kernel runs faster than the next one is launched.
"""

import pytest
import torch

from decoder.knobs import RulesName, TunableParameters
from decoder.methods import METHODS
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.draft import DraftLayout, best_tokens
from decoder.session.cuda_graph.static_shapes import Shape
from dynatui.lab.bench.rounds import Size, run_of
from tests.fake_cuda.recording import record
from tests.fake_cuda.shapes import HEAD, Made, engine_of, steady, without_values

pytest.importorskip("triton", reason="Triton is not installed")

PYTHIA, LLAMA = ("pythia-2.8b", "pythia-70m"), ("llama-3.1-8b", "llama-3.2-1b")
HEADED = ("llama-3.1-8b", HEAD)
SIZE = Size(8, 64)
RUN = RunConfig(max_new_tokens=128)
HALF, BRAIN = torch.float16, torch.bfloat16
GREEDY, WARM, TOP_P = Sampling(), Sampling(0.8), Sampling(temperature=1.0, top_k=50, top_p=0.95)
EIGHT_BY_64 = run_of(SIZE, RUN)[1].of(DynaTree)


@pytest.mark.parametrize(
    ("pair", "dtype", "sampling", "kernels", "rules", "most"),
    [
        pytest.param(PYTHIA, HALF, GREEDY, True, EIGHT_BY_64, 410, id="Pythia, float16"),
        pytest.param(PYTHIA, HALF, TOP_P, True, EIGHT_BY_64, 517, id="Pythia, sampled"),
        pytest.param(LLAMA, BRAIN, GREEDY, True, EIGHT_BY_64, 1050, id="Llama, bfloat16"),
        pytest.param(HEADED, BRAIN, TOP_P, True, EIGHT_BY_64, 931, id="EAGLE-3 head, sampled"),
        pytest.param(PYTHIA, HALF, GREEDY, False, EIGHT_BY_64, 865, id="Pythia, plain operators"),
        pytest.param(PYTHIA, HALF, TOP_P, False, EIGHT_BY_64, 1035, id="plain operators, truncated"),
        pytest.param(PYTHIA, HALF, GREEDY, False, DynaTree(), 909, id="plain operators, bfs"),
        pytest.param(PYTHIA, HALF, GREEDY, False, Linear(4), 583, id="plain operators, linear"),
    ],
)
def test_a_steady_round_asks_for_few_operators_two_replays_one_copy_and_one_wait(
    pair: tuple[str, str],
    dtype: torch.dtype,
    sampling: Sampling,
    *,
    kernels: bool,
    rules: TunableParameters,
    most: int,
) -> None:
    """A round with a tree of these rules, after 256 tokens."""
    made = Made(4, 5, 3) if isinstance(rules, Linear) else Made(SIZE.depth, SIZE.rows, 3)
    method: RulesName = "linear" if isinstance(rules, Linear) else "dynatree"
    with without_values(made) as device:
        engine = engine_of(*pair, dtype, kernels=kernels).sampled(1, Schedule(sampling))
        found = steady(METHODS[method].open(engine, list(range(1, 257)), RUN.with_rules(method, rules)), device)
    assert found.operators <= most
    assert found.eager == {"copy_": 1}
    assert found.requests == {"replay": 2, "copy": 1, "wait": 1, "event": 5}


@pytest.mark.parametrize(("sampling", "most"), [(GREEDY, 174), (TOP_P, 210)], ids=["greedy", "sampled"])
def test_a_steady_round_of_lookups_asks_for_one_replay_a_copy_each_way_and_one_wait(
    sampling: Sampling, most: int
) -> None:
    config = RUN.with_rules("linear", Linear(SIZE.depth))
    with without_values(Made(accepted=3)) as device:
        engine = engine_of(PYTHIA[0], None, HALF, kernels=True).sampled(1, Schedule(sampling))
        # The made-up reports commit token 1 in each round, so the text's end is always a repetition.
        found = steady(METHODS["linear"].open(engine, [1] * 256, config), device)
    assert found.operators <= most
    assert found.eager == {"copy_": 2}
    assert found.requests == {"replay": 1, "copy": 2, "wait": 1, "event": 3}


def test_a_steady_round_of_plain_decoding_without_a_draft_model_asks_for_one_replay_one_copy_and_one_wait() -> None:
    with without_values(Made()) as device:
        engine = engine_of(PYTHIA[0], None, HALF, kernels=True)
        found = steady(METHODS["ar"].open(engine, [1] * 256, RUN), device)
    assert found.eager == {"copy_": 1}
    assert found.requests == {"replay": 1, "copy": 1, "wait": 1, "event": 3}


@pytest.mark.parametrize("vocabulary", [32003, 50277, 50304, 128256, 151643, 151936])
def test_the_best_tokens_take_few_kernels_in_a_large_vocabulary_of_any_size(vocabulary: int) -> None:
    layout = DraftLayout(Shape(8, (1, 8), best=True), vocabulary, torch.device("cpu"))
    logits, logprobs, tokens = torch.zeros(8, vocabulary), torch.zeros(8, 8), torch.zeros(8, 8, dtype=torch.int64)
    assert record(lambda: best_tokens(logits, layout, logprobs, tokens)).launches == 7 + (layout.rest > 0)
