"""Tokens of a growing text are those of the whole text, whatever its tokenizer, and a continuation's follow the text."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from decoder.draft.retokenized import OPEN_CHARACTERS, Following, GrowingTokens, common_prefix, encoded, first_tokens
from tests import tiny

TEXT = (
    "The tree grows.\n\n  Where the draft is sure, the target prunes; it's 12,345 times as fast!\n\tdef f(x): return x\n"
    "Zwölf Boxkämpfer jagen Viktor 😀😀 quer über den 日本語のテキストです großen Deich 👩‍👩‍👧.   \n\n\n And so on, "
)
CORPUS = [*tiny.SENTENCES, *tiny.OTHER_SENTENCES, TEXT]


def byte_level(words: int = 400) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=words, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def unigram() -> PreTrainedTokenizerFast:
    """With a prefix space and a token that begins every text, as Llama's tokenizers have."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>")


def word_pieces() -> PreTrainedTokenizerFast:
    """Lower case and no spaces, with tokens around every text, as BERT's tokenizers have."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=200, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]"
    )


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "byte-level": byte_level,
    "unigram": unigram,
    "word pieces": word_pieces,
}


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
    luck, text = random.Random(1), TEXT * 4
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

    growing = GrowingTokens(counted)  # type: ignore[arg-type] - of a tokenizer, only the call is needed
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
