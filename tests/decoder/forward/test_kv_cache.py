"""After every round the engine's keys and values equal those of a fresh forward pass over the committed text."""

from typing import Any

import pytest
import torch

from decoder import DynaTree, Fixed, RunConfig
from decoder.methods import chosen
from tests.decoder.kept_rows import keys_values
from tests.decoder.makers import TinyModels
from tests.tiny import FAMILIES

PROMPT = "The tree grows"
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
BUSHY = DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=30)
CONFIGS = {
    "dynatree": RunConfig(("dynatree",), 24, dynatree=BUSHY),
    "dynatree best": RunConfig(
        ("dynatree",), 24, dynatree=DynaTree(rho_stop=0, rho_deep=0, tau=0, n_max=9, selection="best")
    ),
    "dynatree as in the paper": RunConfig(("dynatree",), 24, dynatree=DynaTree()),
    "alg1": RunConfig(("alg1",), 24, dynatree=BUSHY),
    "fixed": RunConfig(("fixed",), 24, fixed=Fixed(tau=0.01, branching=3, n_max=40)),
    "linear": RunConfig(("linear",), 24),
    "ar": RunConfig(("ar",), 24),
}

PAIRS = (*FAMILIES, "begin", "neox-strange")
CASES = [
    pytest.param(name, config, list(TOLERANCE)[(row + column) % 2], id=f"{name}-{method}")
    for row, name in enumerate(PAIRS)
    for column, (method, config) in enumerate(CONFIGS.items())
]
"""Each pair with each method, and both dtypes with each of them in turn."""


def fresh(module: Any, text: list[int]) -> torch.Tensor:
    """Keys and values of a plain forward pass; shape (layers, 2, heads, positions, width)."""
    with torch.inference_mode():
        layers = module(torch.tensor([text]), use_cache=True).past_key_values.layers
    return torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in layers])


def largest_error(kept: torch.Tensor, right: torch.Tensor) -> float:
    assert kept.shape == right.shape
    return float((kept - right).abs().max())


@pytest.mark.parametrize(("name", "config", "dtype"), CASES)
def test_committed_keys_and_values_are_those_of_a_fresh_forward(
    tiny_models: TinyModels, name: str, config: RunConfig, dtype: str
) -> None:
    pair = tiny_models.pair(name)
    text = tiny_models.prompt_tokens(pair, PROMPT)
    kept: dict[str, list[torch.Tensor]] = {"target": [], "draft": []}
    (method,) = chosen(config.methods)
    engine = tiny_models.loaded(pair, dtype)
    session: Any = method.open(engine, text, config)
    session.prefill()
    finished = None
    while not finished:
        outcome = session.step(())
        text = text + outcome.committed
        finished = outcome.finished
        # The last committed token is the next root and not yet read, except in Algorithm 1, which reads it at once.
        known = len(text) if method.name == "alg1" else len(text) - 1
        kept["target"].append(keys_values(session.target_cache, engine.pair.target.runs_by))
        assert kept["target"][-1].shape[3] == known
        if method.name == "alg1" or session.proposer:
            drafter = session.drafter if method.name == "alg1" else session.proposer
            kept["draft"].append(keys_values(drafter.passes.cache, engine.pair.draft_model.runs_by))
            assert kept["draft"][-1].shape[3] in (len(text) - 1, len(text) - 2) or finished
    # A row depends on the rows before it alone, so the rows of the whole text are those of its beginnings too.
    for path, rounds in ((pair.target, kept["target"]), (pair.draft, kept["draft"])):
        right = fresh(tiny_models.plain(path, dtype), text)
        worst = max((largest_error(rows, right[..., : rows.shape[3], :]) for rows in rounds), default=0.0)
        assert worst < TOLERANCE[dtype]
