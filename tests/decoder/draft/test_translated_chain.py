"""Draft tokens become target tokens as soon as another follows, with their probabilities; trees are chains."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from decoder.draft import translated_drafter
from decoder.draft.growth import Children
from decoder.draft.translated_drafter import OPEN_CHARACTERS, Following, GrowingTokens, TranslatedDrafter, common_prefix
from decoder.methods.linear import Linear
from decoder.models.pair import Translation
from decoder.models.text import encoded, first_tokens
from decoder.models.tokenizer import TextTokenizer
from decoder.tree import TokenTree
from tests.decoder.other_tokenizers import TEXT, TOKENIZERS, byte_level, unigram, word_pieces

END, EOS = 0, 7
GROWTH = Linear().rule().growth


def tokenizer_of(*merges: tuple[str, str]) -> Any:
    """A byte-level tokenizer with the given merges."""
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    tokenizer = Tokenizer(models.BPE(vocab={word: place for place, word in enumerate(words)}, merges=[*merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def merges_of(*words: str) -> list[tuple[str, str]]:
    """Merges that build words from left to right."""
    spelt = [word.replace(" ", "Ġ") for word in words]
    return list(dict.fromkeys((word[:end], word[end]) for word in spelt for end in range(1, len(word))))


BYTES, WORDS = tokenizer_of(), tokenizer_of(*merges_of("house", " and", " the"))
CHANGING = tokenizer_of(("h", "o"), ("u", "s"), ("us", "e"), ("ho", "use"))


def ids(tokenizer: Any, text: str) -> list[int]:
    tokens: list[int] = tokenizer(text).input_ids
    return tokens


class Script(TranslatedDrafter):
    """A drafter whose draft model says these tokens, with these probabilities, and then has no room."""

    def __init__(self, draft: Any, target: Any, said: Sequence[int], probabilities: Sequence[float] = ()) -> None:
        pair: Any = SimpleNamespace(tokenizer=target, vocabulary=len(target), eos=frozenset({EOS}))
        model: Any = SimpleNamespace(context=10_000)
        super().__init__(pair, model, Translation(draft, len(draft), frozenset({END})), 100)
        self.said = 0
        self._script = [*zip(said, probabilities or [0.9] * len(said), strict=True)]

    def _after(self, tokens: list[int], latest: int = 1) -> Tensor:
        assert latest == 1
        token, probability = self._script[self.said]
        self.said += 1
        self._context = len(tokens) + 1 + len(self._script) - self.said
        row = torch.full((1, 300), math.log((1 - probability) / 299))
        row[0, token] = math.log(probability)
        return row

    def chain(self, text: Sequence[int], growth: Any = GROWTH) -> list[Children]:
        """The proposed tokens after a text."""
        tree, found = TokenTree([text[-1]]), []
        (node,), children = [0], self.catch_up(text, growth)
        while children.tokens:
            found.append(children)
            (node,) = tree.grow(node, children.tokens, children.logprobs, children.draft_logprobs)
            (children,) = self.forward_level(tree, [node], growth)
        return found


@pytest.fixture(autouse=True)
def _no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translated_drafter, "DraftPasses", lambda *_: SimpleNamespace(count=0))


def tokens(chain: Sequence[Children]) -> list[int]:
    return [token for children in chain for token in children.tokens]


def test_a_target_token_is_proposed_once_another_follows_it() -> None:
    script = Script(BYTES, WORDS, ids(BYTES, "house.."))
    children = script.catch_up(ids(WORDS, "the "), GROWTH)
    assert (WORDS.decode(children.tokens), script.said) == ("house", 6)


def test_a_target_token_has_the_product_of_the_draft_tokens_that_begin_within_it() -> None:
    script = Script(BYTES, WORDS, ids(BYTES, " and the."), (*(0.5,) * 4, 0.9, *(0.8,) * 3, 0.1))
    chain = script.chain(ids(WORDS, "a"))
    assert WORDS.convert_ids_to_tokens(tokens(chain)) == ["Ġand", "Ġthe", "."]
    found = [math.exp(children.logprobs[0]) for children in chain]
    assert found == pytest.approx([0.5**4, 0.9 * 0.8**3, 0.1], rel=1e-4)


def test_the_whole_probability_of_a_draft_token_counts_at_its_first_target_token() -> None:
    chain = Script(WORDS, BYTES, ids(WORDS, " and"), (0.5,)).chain(ids(BYTES, "a"))
    assert BYTES.decode(tokens(chain)) == " and"
    assert [math.exp(children.logprobs[0]) for children in chain] == pytest.approx([0.5, 1, 1, 1], rel=1e-4)


def test_a_greedy_token_has_its_sharpened_probability_and_the_draft_s_own() -> None:
    sharper = replace(GROWTH, sharpness=2.0)
    (children,) = Script(BYTES, BYTES, ids(BYTES, "e"), (0.5,)).chain(ids(BYTES, "a"), sharper)
    assert math.exp(children.draft_logprobs[0]) == pytest.approx(0.5, rel=1e-4)
    assert math.exp(children.logprobs[0]) == pytest.approx(0.25 / (0.25 + 0.25 / 299), rel=1e-4)


def test_after_a_text_that_ends_within_a_character_nothing_is_drafted() -> None:
    script = Script(BYTES, WORDS, ids(BYTES, "😀."))
    assert script.chain(ids(WORDS, "a😀")[:-2]) == []
    assert script.said == 0


def test_a_token_without_text_ends_the_chain() -> None:
    draft = tokenizer_of()
    draft.add_special_tokens({"eos_token": "<end>"})
    script = Script(draft, WORDS, [*ids(draft, " th"), draft.eos_token_id, *ids(draft, "e")])
    script.chain(ids(WORDS, "a"))
    assert script.said == 4


@pytest.mark.parametrize(
    ("said", "target", "proposed"),
    [
        pytest.param(ids(BYTES, "😀")[:-1], WORDS, [], id="the bytes of a character wait for the last one"),
        pytest.param(ids(BYTES, "😀."), WORDS, ids(WORDS, "😀."), id="and are proposed with it"),
        pytest.param(ids(BYTES, "house"), CHANGING, ids(CHANGING, "ho"), id="a token that changes ends the chain"),
        pytest.param([*ids(BYTES, " the"), END], WORDS, [*ids(WORDS, " the"), EOS], id="the end is the target's end"),
    ],
)
def test_a_chain_is_that_of_the_text_that_the_draft_said(said: list[int], target: Any, proposed: list[int]) -> None:
    assert tokens(Script(BYTES, target, said).chain(ids(target, "a"))) == proposed


# Retokenization: a growing text has the tokens of the whole text


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return TOKENIZERS[request.param]()


def pieces(text: str, luck: random.Random) -> list[str]:
    """The text in pieces of 1 to 9 characters."""
    found = []
    while text:
        count = luck.randint(1, 9)
        found.append(text[:count])
        text = text[count:]
    return found


def test_a_growing_text_has_the_tokens_of_the_whole_text(tokenizer: Any) -> None:
    luck, text = random.Random(1), TEXT * 8
    growing, grown = GrowingTokens(tokenizer), ""
    for piece in pieces(text, luck):
        growing.append(piece)
        grown += piece
    whole = [*first_tokens(tokenizer), *encoded(tokenizer, grown)]
    assert len(grown) > 2 * OPEN_CHARACTERS
    assert growing.tokens == whole


def test_only_the_end_of_a_long_text_is_tokenized_again(tokenizer: Any) -> None:
    lengths: list[int] = []

    def counted(text: str, **settings: Any) -> Any:
        lengths.append(len(text))
        return tokenizer(text, **settings)

    growing = GrowingTokens(cast("TextTokenizer", counted))
    growing.append(TEXT * 20)
    lengths.clear()
    growing.append("more")
    assert max(lengths) < 2 * OPEN_CHARACTERS


def test_the_first_tokens_are_those_before_a_text_alone() -> None:
    assert first_tokens(byte_level()) == []
    assert first_tokens(unigram()) == [0]
    assert first_tokens(word_pieces()) == [1]


def test_a_continuation_has_no_prefix_space() -> None:
    tokenizer = unigram()
    tokens = Following(tokenizer, "Nothing is").tokens(" lost: the text")
    assert encoded(tokenizer, "Nothing is lost: the text") == [*encoded(tokenizer, "Nothing is"), *tokens]


def test_a_text_that_would_be_joined_with_the_one_before_is_tokenized_apart() -> None:
    tokenizer = byte_level()
    assert len(encoded(tokenizer, " the")) == 1
    tokens = Following(tokenizer, "at t").tokens("he")
    assert tokenizer.decode(tokens) == "he"


@pytest.mark.parametrize(
    ("one", "other", "agreed"),
    [([], [1], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2, 4, 5], 2), ([1, 2], [1, 2, 3], 2), ([2, 1], [1, 1], 0)],
)
def test_common_prefixes(one: Sequence[int], other: Sequence[int], agreed: int) -> None:
    assert common_prefix(one, other) == agreed
