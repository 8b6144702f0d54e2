"""A chain of draft tokens is translated to target tokens as soon as these are certain, with its probabilities."""

import math
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from decoder.draft.retokenized import Following
from decoder.draft.translated_chain import Logprob, TranslatedChain
from decoder.models.text import TextStream


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


def ids(tokenizer: Any, text: str) -> list[int]:
    tokens: list[int] = tokenizer(text).input_ids
    return tokens


def chain_of(draft: Any, target: Any, committed: str, torn: int = 0) -> TranslatedChain:
    """A chain after a text without its last `torn` target tokens."""
    stream, tokens = TextStream(target, ()), ids(target, committed)
    before = stream.push(tokens[: len(tokens) - torn])
    return TranslatedChain(TextStream(draft, ids(draft, before)), stream, Following(target, before))


def added(chain: TranslatedChain, tokens: list[int], *probabilities: float) -> TranslatedChain:
    for place, token in enumerate(tokens):
        logprob = math.log(probabilities[place]) if probabilities else 0.0
        chain.add(token, Logprob(logprob, logprob))
    return chain


def test_a_target_token_is_certain_once_another_draft_token_leaves_it_unchanged() -> None:
    chain = chain_of(BYTES, WORDS, "the ")
    for text, certain in (("h", ""), ("o", ""), ("u", ""), ("s", ""), ("e", ""), (".", "house")):
        added(chain, ids(BYTES, text))
        assert WORDS.decode(chain.tokens) == certain
    assert len(chain.tokens) == 1


def test_a_target_token_has_the_product_of_the_draft_tokens_that_begin_within_it() -> None:
    chain = added(chain_of(BYTES, WORDS, "a"), ids(BYTES, " and the."), *(0.5,) * 4, 0.9, *(0.8,) * 3, 0.1)
    assert WORDS.convert_ids_to_tokens(chain.tokens) == ["Ġand", "Ġthe"]
    assert [math.exp(each.ranked) for each in chain.logprobs] == pytest.approx([0.5**4, 0.9 * 0.8**3])


def test_the_whole_probability_of_a_draft_token_counts_at_its_first_target_token() -> None:
    chain = added(chain_of(WORDS, BYTES, "a"), ids(WORDS, " and the"), 0.5, 0.25)
    assert BYTES.decode(chain.tokens) == " and"
    assert [math.exp(each.own) for each in chain.logprobs] == pytest.approx([0.5, 1.0, 1.0, 1.0])


def test_the_bytes_of_a_character_wait_for_the_last_one() -> None:
    chain = chain_of(BYTES, WORDS, "a")
    *first, last, after = ids(BYTES, "😀.")
    assert added(chain, first).tokens == []
    assert chain.torn
    assert added(chain, [last, after]).tokens == ids(WORDS, "😀")


def test_a_committed_half_of_a_character_is_continued_with_its_other_half() -> None:
    chain = added(chain_of(BYTES, WORDS, "a😀", torn=2), ids(BYTES, "😀."))
    assert chain.tokens == ids(WORDS, "😀")[2:]


def test_a_draft_of_another_character_than_the_committed_half_ends_the_chain() -> None:
    chain = added(chain_of(BYTES, WORDS, "a😀", torn=2), ids(BYTES, "é."))
    assert (chain.tokens, chain.ended) == ([], True)


def test_a_certain_token_that_changes_after_all_ends_the_chain() -> None:
    target = tokenizer_of(("h", "o"), ("u", "s"), ("us", "e"), ("ho", "use"))
    chain = added(chain_of(BYTES, target, "."), ids(BYTES, "hou"))
    assert target.convert_ids_to_tokens(chain.tokens) == ["ho"]
    added(chain, ids(BYTES, "se"))
    assert target.convert_ids_to_tokens(chain.tokens) == ["ho"]
    assert chain.ended


def test_the_end_of_the_drafts_text_makes_all_of_it_certain_and_is_the_targets_end() -> None:
    chain = added(chain_of(BYTES, WORDS, "a"), ids(BYTES, " the"), *(0.5,) * 4)
    chain.end(7, Logprob(-1.0, -1.0))
    assert chain.tokens == [*ids(WORDS, " the"), 7]
    assert chain.logprobs[-1].own == -1.0
    assert chain.ended


def test_a_token_without_text_ends_the_chain() -> None:
    draft = tokenizer_of()
    draft.add_special_tokens({"eos_token": "<end>"})
    chain = added(chain_of(draft, WORDS, "a"), [*ids(draft, " th"), draft.eos_token_id])
    assert chain.ended
