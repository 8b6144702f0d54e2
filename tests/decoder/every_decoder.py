"""Small tokenizers with every kind of decoder; most of them have tokens for parts of characters."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

from tests.decoder.other_tokenizers import byte_level, unigram, word_pieces

LETTERS = "abcdefghijklmnopqrstuvwxyz.,日本ส한"
SILENT, UNKNOWN, SPACE = "<silent>", "<unk>", "▁"
BYTES = tuple(f"<0x{value:02X}>" for value in range(256))
WORDS = (UNKNOWN, *BYTES, SPACE, *LETTERS, *(SPACE + letter for letter in LETTERS))


def _fast(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    tokenizer.add_special_tokens([SILENT])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


def _numbered(words: tuple[str, ...]) -> dict[str, int]:
    return {word: place for place, word in enumerate(words)}


def _spelt(text: str) -> list[str]:
    ((spelt, _),) = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    return list(spelt)


def _of_bytes(*merges: tuple[str, str]) -> PreTrainedTokenizerFast:
    words = (*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges))
    tokenizer = Tokenizer(models.BPE(_numbered(words), [*merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _fast(tokenizer)


def torn_bytes() -> PreTrainedTokenizerFast:
    """Tokens of two bytes, many of which end a character and begin another."""
    spelt = _spelt("สวัสดี 한국어 👩‍👧‍👦 é日本")
    return _of_bytes(*dict.fromkeys(pairwise(spelt)))


def trained_bytes() -> PreTrainedTokenizerFast:
    tokenizer = byte_level()
    tokenizer.add_special_tokens({"additional_special_tokens": [SILENT]})
    return tokenizer


def _fallback(*decoded: Any) -> PreTrainedTokenizerFast:
    """Llama 2's tokenizer in small: characters without a token of their own become bytes."""
    merges = [(SPACE, letter) for letter in LETTERS]
    model = models.BPE(vocab=_numbered(WORDS), merges=merges, unk_token=UNKNOWN, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence([*decoded])
    return _fast(tokenizer)


def llama() -> PreTrainedTokenizerFast:
    """As Llama 2, Mistral and Phi-3: the text's first space is dropped."""
    return _fallback(decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0))


def gemma() -> PreTrainedTokenizerFast:
    """As Gemma: the text's first space stays."""
    return _fallback(decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse())


def metaspace() -> PreTrainedTokenizerFast:
    """Byte fallback before Metaspace, as converted from SentencePiece's unigrams."""
    return _fallback(decoders.ByteFallback(), decoders.Metaspace(SPACE, prepend_scheme="always"))


def two_stripped() -> PreTrainedTokenizerFast:
    """The text's first two spaces are dropped."""
    return _fallback(decoders.ByteFallback(), decoders.Replace(SPACE, " "), decoders.Fuse(), decoders.Strip(" ", 2, 0))


def only_bytes() -> PreTrainedTokenizerFast:
    """No token but bytes, all of one run."""
    tokenizer = Tokenizer(models.BPE(vocab=_numbered((UNKNOWN, *BYTES)), merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return _fast(tokenizer)


def suffixes() -> PreTrainedTokenizerFast:
    """Words end with a suffix, which becomes a space unless the text ends."""
    words = (*LETTERS, *(f"{letter}</w>" for letter in LETTERS))
    tokenizer = Tokenizer(models.BPE(_numbered(words), [], end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return _fast(tokenizer)


def repeated() -> PreTrainedTokenizerFast:
    """Connectionist temporal classification: a repeated token counts once."""
    words = ("<pad>", "|", UNKNOWN, *LETTERS)
    tokenizer = Tokenizer(models.WordLevel(_numbered(words), unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.CTC()
    return _fast(tokenizer)


class SlowTokenizer(PreTrainedTokenizer):
    """Tokenizes in Python, and decodes as SentencePiece: bytes that are no character become U+FFFD one by one."""

    def __init__(self, **settings: Any) -> None:
        self._ids = _numbered(WORDS)
        super().__init__(  # type: ignore[no-untyped-call]  # untyped in transformers
            unk_token=UNKNOWN, additional_special_tokens=[SILENT], **settings
        )

    @property
    def vocab_size(self) -> int:
        return len(self._ids)

    def get_vocab(self) -> dict[str, int]:
        return {**self._ids, **self.added_tokens_encoder}

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        spelt = (SPACE + text).replace(" ", SPACE)
        return [
            token
            for letter in spelt
            for token in ([letter] if letter in self._ids else [BYTES[byte] for byte in letter.encode()])
        ]

    def _convert_token_to_id(self, token: str) -> int:
        return self._ids.get(token, 0)

    def _convert_id_to_token(self, index: int) -> str:
        return WORDS[index] if index < len(WORDS) else UNKNOWN

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        code = b"".join(
            bytes.fromhex(token[3:5]) if token.startswith("<0x") else token.replace(SPACE, " ").encode()
            for token in tokens
        )
        text = ""
        while code:
            length = next((n for n in range(1, 5) if _is_character(code[:n])), 0)
            text += code[:length].decode() if length else "\N{REPLACEMENT CHARACTER}"
            code = code[max(1, length) :]
        return text.removeprefix(" ")


def _is_character(code: bytes) -> bool:
    try:
        return len(code.decode()) == 1
    except UnicodeDecodeError:
        return False


TOKENIZERS: dict[str, Callable[[], Any]] = {
    "trained bytes": trained_bytes,
    "single bytes": _of_bytes,
    "torn bytes": torn_bytes,
    "llama": llama,
    "gemma": gemma,
    "metaspace": metaspace,
    "two stripped": two_stripped,
    "only bytes": only_bytes,
    "slow": SlowTokenizer,
    "unigram": unigram,
    "word pieces": word_pieces,
    "suffixes": suffixes,
    "repeated": repeated,
}
