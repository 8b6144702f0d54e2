"""The selectors that come with the embedded pair: small, matched to the pair, and used unless another is named."""

import pytest

from decoder import RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.events import Round
from decoder.methods.delayed import Delayed
from decoder.selector.chooser import SHIPPED, load
from decoder.selector.stored import fingerprint, read_info

MOST_BYTES = 1_500_000


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_pair(dtype="float32", device="cpu")


def test_they_fit_the_embedded_pair_and_are_small(engine: Engine) -> None:
    files = list(SHIPPED.glob("*.safetensors"))
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    assert {read_info(file).pair for file in files} == {fingerprint(engine.pair.observed())}
    assert set(load("", engine.pair.observed())) == {"specinfer", "traversal"}


@pytest.mark.parametrize("verifier", ["specinfer", "traversal"])
def test_their_choices_differ_from_round_to_round(engine: Engine, verifier: str) -> None:
    run = RunConfig(("delayed",), 48, temperature=0.6, delayed=Delayed(verifier, "selector"))
    events = decode(engine, "The old man put down his lantern and looked at the boy.", run)
    rounds = [event for event in events if isinstance(event, Round)]
    assert len({max(depths(event.parents)) for event in rounds[1:]}) > 1


def depths(parents: list[int]) -> list[int]:
    found = [0]
    for parent in parents[1:]:
        found.append(found[parent] + 1)
    return found
