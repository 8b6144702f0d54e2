"""Text decoded token by token has no lost, repeated or split character."""

import time
from collections.abc import Iterator

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from decoder.errors import PromptError
from decoder.models.text import Pieces, TextStream, encode_prompt, encode_prompts, repeated_start, without_surrogates
from tests.decoder.other_tokenizers import BEGIN, TOKENIZERS


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token per byte, so that most characters take several tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({symbol: index for index, symbol in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def streamed(tokenizer: PreTrainedTokenizerFast, text: str, burst: int) -> Iterator[str]:
    """The text added by each burst of tokens."""
    ids = tokenizer(text).input_ids
    stream = TextStream(tokenizer, tokenizer("once upon").input_ids)
    for start in range(0, len(ids), burst):
        yield stream.push(ids[start : start + burst])
    yield stream.finish()


def test_a_prompt_beyond_every_context_is_refused_before_it_is_read(tokenizer: PreTrainedTokenizerFast) -> None:
    prompt = "word " * 3_000_000
    began = time.monotonic()
    with pytest.raises(PromptError) as caught:
        encode_prompt(tokenizer, prompt, 8, 2048, special=True)
    assert time.monotonic() - began < 0.5
    assert str(caught.value) == (
        "the prompt has 15000000 characters, far more than the models' context of 2048 tokens can hold; "
        "shorten the prompt"
    )


def test_a_prompt_that_fits_is_read_however_long_its_tokens_are() -> None:
    blanks = [" " * 2**power for power in range(6)]
    merges = [(blank, blank) for blank in blanks[:-1]]
    backend = Tokenizer(models.BPE({blank: index for index, blank in enumerate(blanks)}, merges))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert len(encode_prompt(tokenizer, " " * 32 * 120, 8, 128, special=True)) == 120


@pytest.mark.parametrize("name", ["unigram", "word pieces"])
def test_special_tokens_that_a_prompt_itself_begins_with_are_read_once_and_told(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    ids, written = encode_prompt(tokenizer, "the tree", 1, 99, special=True), f"{BEGIN}the tree"
    assert encode_prompt(tokenizer, written, 1, 99, special=True)[: len(ids)] == ids
    assert encode_prompt(tokenizer, f"{BEGIN}{written}", 1, 99, special=False)[0] == ids[0]
    assert repeated_start(tokenizer, written, special=True) == BEGIN
    assert repeated_start(tokenizer, written, special=False) == ""
    assert repeated_start(tokenizer, "the tree", special=True) == ""


def test_prompt_and_new_tokens_may_fill_the_context_and_no_more(tokenizer: PreTrainedTokenizerFast) -> None:
    assert len(encode_prompt(tokenizer, "abc", 5, 8, special=True)) == 3
    with pytest.raises(PromptError, match=r"has 3 tokens; with 6 new tokens .* of 8 tokens; give .* 5 or less$"):
        encode_prompt(tokenizer, "abc", 6, 8, special=True)
    with pytest.raises(PromptError, match=r"not one new token fits$"):
        encode_prompt(tokenizer, "abc", 1, 3, special=True)


def test_of_several_prompts_the_one_that_does_not_fit_is_named(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(PromptError, match=r"^prompt 2 of 2: the prompt is empty"):
        encode_prompts(tokenizer, ["a", ""], 8, 128)
    with pytest.raises(PromptError, match=r"^the prompt is empty"):
        encode_prompts(tokenizer, [""], 8, 128)


@pytest.mark.parametrize("text", [" a time.", "né — «naïf» 🌊🌊 日本語", "tab\tand\nline\n\n", " trailing  "])
def test_streamed_parts_join_to_the_text(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    for burst in (1, 2, 3, 5, 7, 100):
        assert "".join(streamed(tokenizer, text, burst)) == text


def test_a_character_shows_only_when_its_last_byte_is_there(tokenizer: PreTrainedTokenizerFast) -> None:
    assert list(streamed(tokenizer, "🌊", 1)) == ["", "", "", "🌊", ""]


def test_bytes_that_are_no_character_do_not_hold_the_text_back(tokenizer: PreTrainedTokenizerFast) -> None:
    broken = tokenizer("é").input_ids[0]
    stream = TextStream(tokenizer, [])
    shown = [stream.push([broken]) for _ in range(20)]
    assert any(shown)
    assert stream.push(tokenizer(" end").input_ids).endswith(" end")


def test_what_is_waiting_at_the_end_is_shown_as_broken(tokenizer: PreTrainedTokenizerFast) -> None:
    stream = TextStream(tokenizer, [])
    assert stream.push(tokenizer("é").input_ids[:1]) == ""
    assert stream.finish() == "\N{REPLACEMENT CHARACTER}"


def test_a_piece_keeps_its_leading_space(tokenizer: PreTrainedTokenizerFast) -> None:
    pieces = Pieces(tokenizer)
    (space,) = tokenizer(" ").input_ids
    assert pieces(space) == " "


def test_half_a_character_has_a_visible_piece(tokenizer: PreTrainedTokenizerFast) -> None:
    assert Pieces(tokenizer)(tokenizer("é").input_ids[0]) == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(("given", "kept"), [("a\ud800b", "a\ufffdb"), ("\udcff", "\ufffd"), ("🌊", "🌊")])
def test_lone_surrogates_are_replaced(given: str, kept: str) -> None:
    assert without_surrogates(given) == kept
