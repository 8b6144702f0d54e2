"""The tokenizer of a GGUF file encodes and decodes texts as the tokenizer it was converted from."""

from pathlib import Path

import pytest

from decoder.models.checkpoints import EMBEDDED_TARGET, load_tokenizer
from decoder.models.compatibility import SAMPLE, tokenizers_of
from decoder.models.gguf.model import GgufTokenizer
from decoder.models.text import TextStream, fed_text
from decoder.models.tokenizer import TextTokenizer
from tests.gguf_pair import GgufPair, needs_llama_cpp
from tests.tiny import train_tokenizer

pytestmark = needs_llama_cpp
TEXTS = (SAMPLE, "", "Call me Ishmael.", "naïve café — “quoted” 你好 🙂", "a<|endoftext|>b", "  two  blanks\n\n")


@pytest.fixture(scope="module")
def tokenizer(gguf_pair: GgufPair) -> TextTokenizer:
    return load_tokenizer(str(gguf_pair.target()))


@pytest.mark.parametrize("text", TEXTS)
def test_texts_have_the_same_tokens(tokenizer: TextTokenizer, text: str) -> None:
    other = load_tokenizer(str(EMBEDDED_TARGET))
    ids = tokenizer(text).input_ids
    assert ids == other(text).input_ids
    for skip in (False, True):
        assert tokenizer.decode(ids, skip_special_tokens=skip) == other.decode(ids, skip_special_tokens=skip)


def test_a_character_in_pieces_is_shown_when_it_is_whole(tokenizer: TextTokenizer) -> None:
    stream, text = TextStream(tokenizer, tokenizer("x").input_ids), "🙂你"
    pieces = [stream.push([token]) for token in tokenizer(text).input_ids]
    assert "".join(pieces) == text
    assert "" in pieces


def test_both_forms_share_a_tokenizer(gguf_pair: GgufPair) -> None:
    for names in ((gguf_pair.target(), EMBEDDED_TARGET), (EMBEDDED_TARGET, gguf_pair.draft())):
        _, of_draft = tokenizers_of(*map(str, names))
        assert of_draft is None


def test_another_tokenizer_is_known_as_the_draft_s_own(gguf_pair: GgufPair, tmp_path: Path) -> None:
    train_tokenizer().save_pretrained(tmp_path)
    _, of_draft = tokenizers_of(str(gguf_pair.target()), str(tmp_path))
    assert of_draft is not None


def test_a_file_without_a_chat_template_says_so_and_one_with_it_is_rendered(tokenizer: TextTokenizer) -> None:
    assert isinstance(tokenizer, GgufTokenizer)
    assert tokenizer.chat_template is None
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
    try:
        assert fed_text(tokenizer, "Hello", chat=True) == ("<|endoftext|>[user] Hello", True)
    finally:
        tokenizer.chat_template = None


def test_ends_of_text_are_those_of_the_file(tokenizer: TextTokenizer) -> None:
    assert isinstance(tokenizer, GgufTokenizer)
    assert tokenizer.ends() == [0]
