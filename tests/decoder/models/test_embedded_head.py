"""The trained EAGLE-3 head that comes with the embedded target: its drafts are accepted, and every text stays exact."""

import pytest

from decoder import Linear, RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.heads.eagle3 import HeadShape
from decoder.models.checkpoints import EMBEDDED, EMBEDDED_TARGET
from decoder.models.heads import head_shape
from decoder.sampling.settings import SAMPLING, Sampling
from tests.decoder.makers import Played

PROMPT = "The old man put down his lantern and looked at the boy for a long time without speaking. At last he said,"
HEAD = EMBEDDED / "books-eagle3"
METHODS = ("ar", "linear", "fixed", "bestfirst", "dynatree", "auto")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_pair(str(EMBEDDED_TARGET), str(HEAD), device="cpu", dtype="float32")


def test_it_is_in_the_published_layout() -> None:
    assert {file.name for file in HEAD.iterdir()} == {"config.json", "model.safetensors", "README.md"}
    shape = head_shape(str(HEAD))
    assert isinstance(shape, HeadShape)
    assert shape.target_layers == (3, 5, 7)


@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_every_method_writes_the_text_of_plain_decoding(engine: Engine, temperature: float) -> None:
    config = RunConfig(METHODS, 60, 1, parameters={SAMPLING: Sampling(temperature)})
    played = Played(list(decode(engine, PROMPT, config)))
    assert {method for method in METHODS if played.tokens(method) != played.tokens("ar")} == set()


def test_most_of_its_first_guesses_are_accepted(engine: Engine) -> None:
    rounds = Played(list(decode(engine, PROMPT, RunConfig(("linear",), 120, linear=Linear(1))))).rounds("linear")
    assert sum(len(event.accepted) for event in rounds) > 0.6 * len(rounds)
