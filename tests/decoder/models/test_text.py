"""Streamed text is the decoding of all tokens, for every decoder, chunking and end of a prompt; prompts fit the context
of both models or are refused.
"""

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from os.path import commonprefix
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from decoder.errors import PromptError
from decoder.models.text import (
    LONGEST_RUN,
    MOST_TOKENS,
    Pieces,
    TextStream,
    encode_prompt,
    encode_prompts,
    repeated_start,
    without_surrogates,
)
from decoder.models.tokenizer import decoded
from decoder.run.config import RunConfig
from decoder.run.fitting import encoded
from tests.decoder.every_decoder import SILENT, TOKENIZERS
from tests.decoder.makers import TinyModels
from tests.decoder.other_tokenizers import BEGIN
from tests.decoder.property_settings import examples

PARTS = (
    *("a", " the tree", "z,", ".", "0", "A", " ", "  ", "\n", "é", "日本語"),
    *("สวัสดีครับ", "வணக்கம்", "한국어", "ሰላም", "😀", "👨‍👩‍👧‍👦", "\u200d", "\ufffd"),
)
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
tokenizer_of = cache(lambda name: TOKENIZERS[name]())
every_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)


@st.composite
def prompts_and_tokens(draw: st.DrawFn, name: str) -> tuple[list[int], list[int]]:
    """A prompt and the tokens after it: of a text, which may be cut anywhere, or any tokens, many of them often."""
    tokenizer = tokenizer_of(name)
    if draw(st.booleans()):
        ids = tokenizer("".join(draw(st.lists(st.sampled_from(PARTS), max_size=20)))).input_ids
        ids = ids[: draw(st.integers(0, len(ids)))]
    else:
        pool = draw(st.lists(st.integers(0, len(tokenizer) - 1), min_size=1, max_size=draw(st.sampled_from((3, 60)))))
        ids = draw(st.lists(st.sampled_from(pool), max_size=120))
    place = draw(st.integers(0, len(ids)))
    return ids[:place], ids[place:]


def added(tokenizer: Any, prompt: list[int], tokens: list[int]) -> str:
    """What the decoding of all tokens has after the characters that begin in the prompt."""
    before, whole = decoded(tokenizer, prompt), decoded(tokenizer, [*prompt, *tokens])
    start = next((end for end in reversed(range(len(prompt) + 1)) if not _is_byte(tokenizer, prompt[:end])), 0)
    run = bytes(_values(tokenizer, prompt[start:]))
    if not run or not _runs_are_decoded_as_a_whole(tokenizer):
        same = len(commonprefix((before, whole)))
        return whole[same + (same < len(before)) :]
    text = whole[len(decoded(tokenizer, prompt[:start])) :]
    following = next((end for end in range(len(tokens) + 1) if not _is_byte(tokenizer, tokens[end : end + 1])), 0)
    if _is_whole(bytes([*run, *_values(tokenizer, tokens[:following])])):
        return text[len(run.decode(errors="ignore")) + (not _is_whole(run)) :]
    return text[len(run) :]


def _values(tokenizer: Any, tokens: list[int]) -> list[int]:
    return [int(name[3:5], 16) for name in tokenizer.convert_ids_to_tokens(tokens) if name.startswith("<0x")]


def _is_byte(tokenizer: Any, tokens: list[int]) -> bool:
    """Whether the last of these tokens may be within a run."""
    return bool(tokens) and tokenizer.convert_ids_to_tokens(tokens[-1]).startswith(("<0x", SILENT))


def _runs_are_decoded_as_a_whole(tokenizer: Any) -> bool:
    values = tokenizer.convert_tokens_to_ids(["<0x41>", "<0x80>"])
    return None not in values and "A" not in decoded(tokenizer, values)


def _is_whole(run: bytes) -> bool:
    return run == run.decode(errors="ignore").encode()


def streamed(tokenizer: Any, prompt: list[int], tokens: Sequence[int], burst: int) -> str:
    stream, parts = TextStream(tokenizer, prompt), list[str]()
    for start in range(0, len(tokens), burst):
        parts.append(stream.push(tokens[start : start + burst]))
        assert burst > 1 or len(stream.waiting) < LONGEST_RUN, "few tokens wait, whatever they are"
    return "".join(parts) + stream.finish()


def has_a_long_run(tokenizer: Any, tokens: list[int]) -> bool:
    """Whether a run has so many bytes that its characters are shown before it ends."""
    names = [name for name in tokenizer.convert_ids_to_tokens(tokens) if name != SILENT]
    runs = (len(list(run)) for of_bytes, run in groupby(name.startswith("<0x") for name in names) if of_bytes)
    return max(runs, default=0) >= LONGEST_RUN


def check(name: str, prompt: list[int], tokens: list[int]) -> None:
    tokenizer = tokenizer_of(name)
    expected, one_by_one = added(tokenizer, prompt, tokens), streamed(tokenizer, prompt, tokens, 1)
    if has_a_long_run(tokenizer, [*prompt, *tokens]) and REPLACEMENT in decoded(tokenizer, prompt) + expected:
        return  # such runs have tests of their own below
    bursts = [streamed(tokenizer, prompt, tokens, burst) for burst in range(2, 10)]
    assert [one_by_one, *bursts] == [expected] * 9


@pytest.mark.parametrize("count", [8, pytest.param(2000, marks=pytest.mark.soak)])
@every_tokenizer
def test_streamed_text_is_the_decoding_of_all_tokens(name: str, count: int) -> None:
    @examples(count)
    @given(prompts_and_tokens(name))
    def streams_as_decoded(ids: tuple[list[int], list[int]]) -> None:
        check(name, *ids)

    streams_as_decoded()


class Counting:
    """A tokenizer that counts the tokens that it decodes."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.tokens = inner, 0
        self.chat_template: Any = None

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool = True) -> Any:
        return self._inner(text, add_special_tokens=add_special_tokens, verbose=verbose)

    def get_vocab(self) -> dict[str, int]:
        vocabulary: dict[str, int] = self._inner.get_vocab()
        return vocabulary

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        return self._inner.convert_tokens_to_ids(tokens)

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **settings: Any) -> Any:  # noqa: FBT001, FBT002 - as transformers has it
        self.tokens += len(token_ids)
        return self._inner.decode(token_ids, skip_special_tokens=skip_special_tokens, **settings)


@every_tokenizer
@pytest.mark.parametrize("kind", ["text", "torn", "silent"])
def test_a_push_decodes_few_tokens_however_long_the_text_is(name: str, kind: str) -> None:
    tokenizer = tokenizer_of(name)
    ids = tokenizer("สวัสดีครับ").input_ids
    pattern = {"text": tokenizer("a สวัสดีครับ 👨‍👩‍👧‍👦\n").input_ids, "torn": ids[1:2] or ids}.get(
        kind, [tokenizer.convert_tokens_to_ids(SILENT) or 0]
    )
    counting = Counting(tokenizer)
    stream, tokens = TextStream(counting, ids), (pattern * 600)[:600]
    for token in tokens:
        stream.push([token])
    assert counting.tokens / len(tokens) < 2 * (MOST_TOKENS + LONGEST_RUN)


def run_of(text: str) -> list[int]:
    """The text as bytes in Llama's tokenizer."""
    return [1 + value for value in text.encode()]


def test_a_run_waits_until_it_ends_since_a_later_byte_may_spoil_it() -> None:
    stream = TextStream(tokenizer_of("llama"), tokenizer_of("llama")("a").input_ids)
    assert stream.push(run_of("ሰላም")) == ""
    assert stream.push([0x80 + 1]) == REPLACEMENT * 10


def test_a_long_run_is_shown_as_it_grows_and_stays_when_it_is_cut() -> None:
    stream = TextStream(tokenizer_of("llama"), [])
    text = "ሰላም" * 20
    parts = [stream.push([token]) for token in run_of(text)]
    assert not any(parts[: LONGEST_RUN - 1])
    assert all("".join(parts[:place]) == text[: place // 3] for place in range(LONGEST_RUN, len(parts)))
    assert stream.push(run_of("ሰ")[:2]) == ""
    assert stream.finish() == REPLACEMENT * 2


def test_a_long_run_that_a_letter_ends_within_a_character_keeps_what_was_shown() -> None:
    tokenizer = tokenizer_of("llama")
    stream, text = TextStream(tokenizer, []), "ሰላም" * 10
    assert stream.push(run_of(text)) == text
    assert stream.push([*run_of("ሰ")[:2], *tokenizer("b").input_ids]) == f"{REPLACEMENT * 2} b"


@pytest.mark.parametrize("name", ["llama", "slow", "single bytes"])
def test_a_character_within_which_the_prompt_ends_belongs_to_the_prompt(name: str) -> None:
    tokenizer = tokenizer_of(name)
    ids = tokenizer("ሰላም b").input_ids
    ends = [place for place in range(len(ids)) if REPLACEMENT in decoded(tokenizer, ids[:place])]
    assert {streamed(tokenizer, ids[:place], ids[place:], 1) for place in ends} == {"ላም b", "ም b", " b"}


def test_a_stream_for_guesses_does_not_wait_for_the_end_of_a_run() -> None:
    stream = TextStream(tokenizer_of("llama"), [], longest_run=0)
    assert [stream.push([token]) for token in run_of("ሰA")] == ["", "", "ሰ", "A"]


def test_tokens_of_an_incomplete_character_are_waiting() -> None:
    for name in ("llama", "slow", "single bytes"):
        tokenizer = tokenizer_of(name)
        stream = TextStream(tokenizer, tokenizer("a").input_ids, longest_run=0)
        ids = tokenizer("ሰላ").input_ids[-6:]
        stream.push(ids[:5])
        assert stream.waiting == ids[3:5]
        stream.push(ids[5:])
        assert stream.waiting == []


@pytest.mark.parametrize("name", ["llama", "gemma", "metaspace", "only bytes", "slow"])
def test_a_byte_of_a_character_has_its_name_as_piece_and_other_bytes_their_character(name: str) -> None:
    pieces = Pieces(tokenizer_of(name))
    assert [pieces(token) for token in run_of("ሰA\n")] == ["<0xE1>", "<0x88>", "<0xB0>", "A", "\n"]


# Prompts

tokenizer = tokenizer_of("single bytes")
"""A tokenizer with one token per byte, so that most characters take several tokens."""


def test_a_prompt_beyond_every_context_is_refused_before_it_is_read() -> None:
    prompt = "word " * 3_000_000
    began = time.monotonic()
    told = "^the prompt has 15000000 characters, far more than the models' context of 2048 tokens can hold; shorten the"
    with pytest.raises(PromptError, match=told):
        encode_prompt(tokenizer, prompt, 8, 2048, special=True)
    assert time.monotonic() - began < 0.5


def test_a_prompt_that_fits_is_read_however_long_its_tokens_are() -> None:
    blanks = [" " * 2**power for power in range(6)]
    merges = [(blank, blank) for blank in blanks[:-1]]
    backend = Tokenizer(models.BPE({blank: index for index, blank in enumerate(blanks)}, merges))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert len(encode_prompt(tokenizer, " " * 32 * 120, 8, 128, special=True)) == 120


@pytest.mark.parametrize("name", ["unigram", "word pieces"])
def test_special_tokens_that_a_prompt_itself_begins_with_are_read_once_and_told(name: str) -> None:
    tokenizer = tokenizer_of(name)
    ids, written = encode_prompt(tokenizer, "the tree", 1, 99, special=True), f"{BEGIN}the tree"
    assert encode_prompt(tokenizer, written, 1, 99, special=True)[: len(ids)] == ids
    assert encode_prompt(tokenizer, f"{BEGIN}{written}", 1, 99, special=False)[0] == ids[0]
    assert repeated_start(tokenizer, written, special=True) == BEGIN
    assert repeated_start(tokenizer, written, special=False) == ""
    assert repeated_start(tokenizer, "the tree", special=True) == ""


def test_prompt_and_new_tokens_may_fill_the_context_and_no_more() -> None:
    assert len(encode_prompt(tokenizer, "abc", 5, 8, special=True)) == 3
    with pytest.raises(PromptError, match=r"has 3 tokens; with 6 new tokens .* of 8 tokens; give .* 5 or less$"):
        encode_prompt(tokenizer, "abc", 6, 8, special=True)
    with pytest.raises(PromptError, match=r"not one new token fits$"):
        encode_prompt(tokenizer, "abc", 1, 3, special=True)


def test_of_several_prompts_the_one_that_does_not_fit_is_named() -> None:
    with pytest.raises(PromptError, match=r"^prompt 2 of 2: the prompt is empty"):
        encode_prompts(tokenizer, ["a", ""], 8, 128)
    with pytest.raises(PromptError, match=r"^the prompt is empty"):
        encode_prompts(tokenizer, [""], 8, 128)


def test_a_character_shows_only_when_its_last_byte_is_there() -> None:
    stream = TextStream(tokenizer, tokenizer("once upon").input_ids)
    assert [stream.push([token]) for token in tokenizer("🌊").input_ids] == ["", "", "", "🌊"]


def test_a_piece_keeps_its_leading_space_and_half_a_character_is_visible() -> None:
    pieces = Pieces(tokenizer)
    assert pieces(*tokenizer(" ").input_ids) == " "
    assert pieces(tokenizer("é").input_ids[0]) == REPLACEMENT


@pytest.mark.parametrize(("given", "kept"), [("a\ud800b", "a\ufffdb"), ("\udcff", "\ufffd"), ("🌊", "🌊")])
def test_lone_surrogates_are_replaced(given: str, kept: str) -> None:
    assert without_surrogates(given) == kept


def test_a_context_limit_names_the_model_that_sets_it(tiny_models: TinyModels) -> None:
    pair = tiny_models.engine("llama").pair
    short = replace(pair, draft=copy.copy(pair.draft_model), context=16)
    short.draft_model.name, short.draft_model.context = "small", 16
    with pytest.raises(PromptError, match="the text exceeds small's context of 16 tokens"):
        encoded(short, "one", RunConfig(max_new_tokens=16))
    with pytest.raises(PromptError, match="the text exceeds target's context of 192 tokens"):
        encoded(pair, "one", RunConfig(max_new_tokens=192))
