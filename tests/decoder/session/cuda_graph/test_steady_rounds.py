"""What a steady round asks of device and host, for pairs of published sizes: operators, replays, copies, waits.

Counted on the fake device without values, with all Triton kernels and with plain operators.
"""

import pytest
import torch

from decoder.methods import METHODS
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.sampling.settings import Sampling, Schedule
from dynatui.lab.bench.shapes import Size, run_of
from tests.fake_cuda.shapes import HEAD, Made, Steady, engine_of, steady, without_values

pytest.importorskip("triton", reason="Triton is not installed")

PYTHIA, LLAMA = ("pythia-2.8b", "pythia-70m"), ("llama-3.1-8b", "llama-3.2-1b")
HEADED = ("llama-3.1-8b", HEAD)
SIZE = Size(8, 64)
GREEDY, TOP_P = Sampling(), Sampling(temperature=1.0, top_k=50, top_p=0.95)


def round_of(pair: tuple[str, str], dtype: torch.dtype, sampling: Sampling, *, kernels: bool) -> Steady:
    """A steady round with a tree of 8 levels and 64 nodes, after 256 tokens."""
    method, config = run_of(SIZE, RunConfig(max_new_tokens=128))
    with without_values(Made(SIZE.depth, SIZE.rows, accepted=3)) as device:
        engine = engine_of(*pair, dtype, kernels=kernels).sampled(1, Schedule(sampling))
        return steady(METHODS[method].open(engine, list(range(1, 257)), config), device)


@pytest.mark.parametrize(
    ("pair", "dtype", "sampling", "kernels", "most"),
    [
        pytest.param(PYTHIA, torch.float16, GREEDY, True, 410, id="Pythia, float16"),
        pytest.param(PYTHIA, torch.bfloat16, GREEDY, True, 410, id="Pythia, bfloat16"),
        pytest.param(PYTHIA, torch.float16, TOP_P, True, 517, id="Pythia, sampled"),
        pytest.param(LLAMA, torch.bfloat16, GREEDY, True, 1050, id="Llama, bfloat16"),
        pytest.param(HEADED, torch.bfloat16, GREEDY, True, 812, id="EAGLE-3 head, bfloat16"),
        pytest.param(HEADED, torch.bfloat16, TOP_P, True, 931, id="EAGLE-3 head, sampled"),
        pytest.param(PYTHIA, torch.float16, GREEDY, False, 865, id="Pythia, plain operators"),
    ],
)
def test_a_steady_round_asks_for_few_operators_two_replays_one_copy_and_one_wait(
    pair: tuple[str, str], dtype: torch.dtype, sampling: Sampling, *, kernels: bool, most: int
) -> None:
    found = round_of(pair, dtype, sampling, kernels=kernels)
    assert found.operators <= most
    assert found.eager == {"copy_": 1}
    assert found.requests == {"replay": 2, "copy": 1, "wait": 1, "event": 5}


@pytest.mark.parametrize(("sampling", "most"), [(GREEDY, 174), (TOP_P, 210)], ids=["greedy", "sampled"])
def test_a_steady_round_of_lookups_asks_for_one_replay_a_copy_each_way_and_one_wait(
    sampling: Sampling, most: int
) -> None:
    method, rules = "linear", Linear(SIZE.depth)
    config = RunConfig(max_new_tokens=128).with_rules(method, rules)
    with without_values(Made(accepted=3)) as device:
        engine = engine_of(PYTHIA[0], None, torch.float16, kernels=True).sampled(1, Schedule(sampling))
        # The made-up reports commit token 1 in each round, so the text's end is always a repetition.
        found = steady(METHODS[method].open(engine, [1] * 256, config), device)
    assert found.operators <= most
    assert found.eager == {"copy_": 2}
    assert found.requests == {"replay": 1, "copy": 2, "wait": 1, "event": 3}


def test_a_steady_round_of_plain_decoding_without_a_draft_model_asks_for_one_replay_one_copy_and_one_wait() -> None:
    with without_values(Made()) as device:
        engine = engine_of(PYTHIA[0], None, torch.float16, kernels=True)
        found = steady(METHODS["ar"].open(engine, [1] * 256, RunConfig(max_new_tokens=128)), device)
    assert found.eager == {"copy_": 1}
    assert found.requests == {"replay": 1, "copy": 1, "wait": 1, "event": 3}
