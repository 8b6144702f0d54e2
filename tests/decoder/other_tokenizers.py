"""Tokenizers of three kinds, trained on a short text in several scripts."""

from collections.abc import Callable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tests import tiny

TEXT = (
    "The tree grows.\n\n  Where the draft is sure, the target prunes; it's 12,345 times as fast!\n\tdef f(x): return\n"
    "Zwölf Boxkämpfer jagen Viktor 😀😀 quer über den 日本語のテキストです großen Deich 👩‍👩‍👧.   \n\n\n And so on, "
)
BEGIN, END, UNKNOWN = "<begin>", "<end>", "<unknown>"
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
    """A tokenizer with a prefix space and a BOS token, like Llama's."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=[BEGIN, UNKNOWN], unk_token=UNKNOWN, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BEGIN, unk_token=UNKNOWN)


def word_pieces() -> PreTrainedTokenizerFast:
    """A tokenizer with lower case, no spaces, and tokens around every text, like BERT's."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=[UNKNOWN, BEGIN, END], show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}", special_tokens=[(BEGIN, 1), (END, 2)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, cls_token=BEGIN, sep_token=END, unk_token=UNKNOWN)


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "byte-level": byte_level,
    "unigram": unigram,
    "word pieces": word_pieces,
}
