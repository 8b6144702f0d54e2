"""The text in a race's events is the decoding of the tokens in them, in every method alike."""

from pathlib import Path

import pytest

from decoder import RunConfig, decode, load_pair
from decoder.events import Round, Run, decode_line, encode
from decoder.models.tokenizer import decoded
from tests import tiny
from tests.decoder.every_decoder import TOKENIZERS

METHODS = ("ar", "linear", "dynatree")
PROMPT = "สวัสดี the tree"


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_every_method_writes_the_decoding_of_its_tokens_with_byte_fallback(name: str, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[name]()
    target = tiny.build(tiny.FAMILIES["llama"](vocab_size=len(tokenizer)), seed=1)
    paths = [
        tiny.save(tmp_path / role, model, tokenizer)
        for role, model in (("target", target), ("draft", tiny.kin(target, 2)))
    ]
    engine = load_pair(*map(str, paths), device="cpu", dtype="float32")
    recorded = [decode_line(encode(event), 1) for event in decode(engine, PROMPT, RunConfig(METHODS, 60))]
    (run,) = (event for event in recorded if isinstance(event, Run))
    before = decoded(tokenizer, run.prompt_tokens)
    for method in METHODS:
        rounds = [event for event in recorded if isinstance(event, Round) and event.method == method]
        tokens = [token for event in rounds for token in event.committed]
        assert before + "".join(event.text for event in rounds) == decoded(tokenizer, [*run.prompt_tokens, *tokens])
    drafted = {piece for event in recorded if isinstance(event, Round) for piece in event.pieces}
    assert any(piece.startswith("<0x") for piece in drafted)
    assert "\N{REPLACEMENT CHARACTER}" not in drafted
