"""Draft models with another tokenizer: every method writes the text of `ar`, and good drafts are still accepted."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

from decoder import Linear, RunConfig, load_pair
from decoder.draft.translated_drafter import TranslatedDrafter
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.events import Run, decode_line, encode
from decoder.methods import METHODS
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET
from tests import tiny
from tests.decoder.makers import Played, TinyModels, host_session, play
from tests.decoder.other_tokenizers import TOKENIZERS, byte_level
from tests.decoder.session.made_costs import FREE, priced

DRAFTING = ("linear", "dynatree", "auto", "fixed")
TEXTS = ("The tree 😀 grows", "  日本語の\n\n\tテキスト", "a", "def f(x):\n    return 1\n\n\n")
CONTEXT = 400


def tiny_model(tokenizer: PreTrainedTokenizerFast, seed: int, context: int = CONTEXT, **shape: Any) -> Any:
    config = tiny.FAMILIES["neox"](vocab_size=len(tokenizer) + 3, max_position_embeddings=context, **shape)
    return tiny.build(config, seed=seed)


def loaded(target: Path, draft: Path) -> Engine:
    return load_pair(str(target), str(draft), device="cpu", dtype="float32")


def pair_of(home: Path, draft: PreTrainedTokenizerFast, draft_context: int = CONTEXT) -> Engine:
    """Two random models, each with its own tokenizer."""
    own = byte_level(300)
    target = tiny.save(home / "target", tiny_model(own, 1), own)
    return loaded(target, tiny.save(home / "draft", tiny_model(draft, 2, draft_context), draft))


@pytest.fixture(scope="module", params=TOKENIZERS)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return pair_of(tmp_path_factory.mktemp("pair"), TOKENIZERS[request.param]())


def permuted(source: Path, home: Path) -> Path:
    """The same model with permuted token ids, except for id 0, the end-of-text token."""
    shutil.copytree(source, home)
    weights = load_file(home / "model.safetensors")
    tokenizer = json.loads((home / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    order = 1 + torch.randperm(len(words) - 1, generator=torch.Generator().manual_seed(5))
    ids = torch.cat([torch.zeros(1, dtype=torch.long), order])
    tokenizer["model"]["vocab"] = {word: int(ids[old]) for word, old in words.items()}
    (home / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in {"gpt_neox.embed_in.weight", "embed_out.weight"} & weights.keys():
        rows = weights[name].clone()
        rows[ids] = weights[name][: len(words)]
        weights[name] = rows
    save_file(weights, home / "model.safetensors", metadata={"format": "pt"})
    return home


def with_fewer_words(source: Path, home: Path, count: int) -> Path:
    """The same model with a tokenizer cut to the first `count` words, so that its tokens are shorter."""
    shutil.copytree(source, home)
    tokenizer = json.loads((home / "tokenizer.json").read_text())
    model = tokenizer["model"]
    model["vocab"] = {word: place for word, place in model["vocab"].items() if place < count}
    model["merges"] = [merge for merge in model["merges"] if "".join(merge) in model["vocab"]]
    (home / "tokenizer.json").write_text(json.dumps(tokenizer))
    return home


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The small embedded model as target and, with permuted token ids, as its own draft model."""
    return loaded(EMBEDDED_DRAFT, permuted(EMBEDDED_DRAFT, tmp_path_factory.mktemp("twins") / "draft"))


PROSE = "It was late, and the house"


def test_a_draft_whose_chain_was_accepted_reads_one_token_in_the_next_round(twins: Engine) -> None:
    session = host_session(twins, twins.pair.tokenizer(PROSE).input_ids, 60, Linear(4))
    session.prefill()
    drafter = session.proposer
    assert isinstance(drafter, TranslatedDrafter)
    for _ in range(4):
        outcome = session.step(())
        assert len(outcome.accepted) == 4
        # A draft token is final only once the next one is known, so a chain of four takes five passes of one token.
        assert outcome.draft_forwards == 5
        assert drafter.passes.cache.length == len(session.text) - 1


@torch.inference_mode()
def test_the_draft_keeps_the_rows_of_the_tokens_that_a_changed_text_begins_with(twins: Engine) -> None:
    draft, translation = twins.pair.draft, twins.pair.translation
    assert draft
    assert translation
    drafter = TranslatedDrafter(twins.pair, draft, translation, 20)
    for tokens in ([5, 6, 7, 8, 9], [5, 6, 70, 8], [5, 6, 70, 8], [5]):
        logits = drafter._after(tokens)
        assert drafter.passes.cache.length == len(tokens)
        torch.testing.assert_close(logits[0], draft.read(draft.new_cache(20), tokens))


@pytest.fixture(scope="module")
def shorter(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The embedded pair, whose draft has shorter tokens."""
    home = tmp_path_factory.mktemp("shorter")
    return loaded(EMBEDDED_TARGET, with_fewer_words(EMBEDDED_DRAFT, home / "draft", 1024))


def test_a_draft_that_was_silent_is_judged_by_its_guesses_for_its_own_tokens(twins: Engine) -> None:
    pair = twins.pair
    assert pair.draft
    assert pair.translation
    text = pair.tokenizer(PROSE + " was still, and the").input_ids
    drafter = TranslatedDrafter(pair, pair.draft, pair.translation, 100)
    drafter.read(text[:3])
    with torch.inference_mode():
        guesses, tokens = drafter.catch_up_with_guesses(text, Linear().rule().growth, 5)
        read = pair.translation.tokenizer(PROSE + " was still, and the").input_ids
        expected = [
            int(pair.draft.read(pair.draft.new_cache(100), read[:end]).argmax())
            for end in range(len(read) - 4, len(read))
        ]
    assert tokens == read[-4:]
    assert [guess.tokens for guess in guesses[:-1]] == [[token] for token in expected]
    plain = replace(twins, pair=replace(pair, draft=pair.target, translation=None))
    assert guesses[-1].tokens == host_first(plain, text)


def host_first(engine: Engine, text: Sequence[int]) -> list[int]:
    """The first token that an untranslated draft model drafts after a text."""
    session = host_session(engine, text, 5, Linear(1))
    session.prefill()
    return session.step(()).tree.tokens[1:]


def raced(engine: Engine, prompt: str, methods: Sequence[str], length: int, **settings: Any) -> Played:
    """A race in which all methods write one text, with trees that are chains."""
    played = play(engine, RunConfig(("ar", *methods), length, **settings), prompt)
    assert len(played.tokens("ar")) == length
    for method in methods:
        assert played.tokens(method) == played.tokens("ar"), method
        if method != "auto":  # which drafts lookups beside them
            for event in played.rounds(method):
                assert event.parents == list(range(-1, len(event.parents) - 1))
    return played


@pytest.mark.parametrize(("prompt", "temperature"), zip(TEXTS, (0.0, 0.7, 0.0, 0.7), strict=True))
def test_every_method_writes_the_text_of_plain_decoding(engine: Engine, prompt: str, temperature: float) -> None:
    raced(priced(engine, FREE), prompt, DRAFTING, 16, temperature=temperature, seed=3)


@pytest.mark.parametrize(("temperature", "least"), [(0.0, 0.98), (0.7, 0.15)])
def test_the_same_model_with_other_token_ids_is_accepted(twins: Engine, temperature: float, least: float) -> None:
    played = raced(twins, PROSE, ("linear", "dynatree", "fixed"), 120, temperature=temperature, seed=7)
    assert (played.figures("linear").acceptance_rate or 0) >= least
    for method in ("dynatree", "fixed"):
        assert any(len(event.parents) > 2 for event in played.rounds(method))


@pytest.mark.parametrize(("temperature", "length", "methods"), [(0.0, 48, DRAFTING), (0.7, 32, ("linear", "auto"))])
def test_a_draft_of_shorter_tokens_helps_the_embedded_target(
    shorter: Engine, temperature: float, length: int, methods: Sequence[str]
) -> None:
    played = raced(shorter, PROSE, methods, length, temperature=temperature, seed=7)
    assert (played.figures("linear").tokens_per_round or 0) > 1.5


def test_a_text_that_outgrows_the_drafts_context_goes_on_without_drafts(tmp_path: Path) -> None:
    rounds = raced(pair_of(tmp_path, byte_level(290), draft_context=96), TEXTS[3], ("linear",), 120).rounds("linear")
    assert rounds[0].draft_forwards
    assert rounds[-1].draft_forwards == 0


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.needs_model])
def test_a_method_that_needs_the_targets_tokens_is_refused_in_one_sentence(twins: Engine, method: str) -> None:
    with pytest.raises(ConfigError, match=f"{method} cannot use draft: .*; leave {method} out of --methods") as refusal:
        play(twins, RunConfig(("ar", method), 2))
    assert "\n" not in str(refusal.value)


def test_it_is_refused_before_weights_are_read(tmp_path: Path) -> None:
    draft = shutil.copytree(EMBEDDED_DRAFT, tmp_path / "draft", ignore=shutil.ignore_patterns("*.safetensors"))
    words = json.loads((draft / "tokenizer.json").read_text())
    words["model"]["vocab"] |= {"!": words["model"]["vocab"]['"'], '"': 1}
    (draft / "tokenizer.json").write_text(json.dumps(words))
    with pytest.raises(ConfigError, match="hf cannot use draft"):
        load_pair(str(EMBEDDED_DRAFT), str(draft), device="cpu", run=RunConfig(("hf",)))


def test_the_recording_says_that_the_draft_is_translated(twins: Engine, tiny_models: TinyModels) -> None:
    run, other = (raced(each, PROSE, (), 2).events[0] for each in (twins, tiny_models.engine("neox")))
    read: Any = decode_line(encode(run), 1)
    assert read.translated
    assert read.path_reason.endswith("; draft translated through text")
    assert isinstance(other, Run)
    assert not other.translated
