"""Tokenizers read without transformers encode and decode every text as transformers does."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET, load_tokenizer
from decoder.models.tokenizer import PlainTokenizer, known_tokenizer
from tests import tiny
from tests.decoder.makers import TinyModels

TEXTS = (
    "",
    " ",
    "\n\n\t \r\n",
    "It was a dark and stormy night; the rain fell in torrents, except at occasional intervals.",
    "don't  stop   me,\u00a0now \u2009 please\u3000!",
    "naïve café Zwölf Boxkämpfer — “quoted” … ½ ² Ⅷ",
    "e\u0301 a\u0308 n\u0303 \u1100\u1161\u11a8 \ufb01 \u2126 K",
    "日本語のテキスト。 한국어 العربية עברית हिन्दी ไทย",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽 \U0001f9ff\ufe0f",
    "\u200b\u200d\u2060\ufeff\u202e abc \u202c\u0000\u0007\u001b[31m",
    "\ufffd\ufffe\uffff\U0010ffff\ue000",
    "<|endoftext|>",
    "a<|endoftext|>b <|endoftext|> \n<|endoftext|><|endoftext|>",
    "<|begin|>text <|begin|> <|begin",
    "<|endoftext", "|>", "<s></s>[INST]",
    "x" * 3000,
    "def f(x):\n    return {'a': [1, 2.5e-3], \"b\": x**2}  # !?",
    "0123456789 " * 20,
    "\u017f ß ẞ \u0130 \u0131 Σ ς \u01c5",
)  # fmt: skip


def folders(tiny_models: TinyModels) -> dict[str, Path]:
    return {
        "target": EMBEDDED_TARGET,
        "draft": EMBEDDED_DRAFT,
        "tiny neox": tiny_models.pair("neox").target,
        "tiny llama": tiny_models.pair("llama").target,
        "tiny llama that begins a text": tiny_models.pair("begin").target,
    }


NAMES = ("target", "draft", "tiny neox", "tiny llama", "tiny llama that begins a text")


def both(tiny_models: TinyModels, name: str) -> tuple[PlainTokenizer, Any]:
    found = load_tokenizer(str(folders(tiny_models)[name]))
    assert isinstance(found, PlainTokenizer)
    return found, AutoTokenizer.from_pretrained(folders(tiny_models)[name])


def compare(mine: PlainTokenizer, theirs: Any, text: str) -> None:
    for special in (True, False):
        ids = theirs(text, add_special_tokens=special, verbose=False).input_ids
        assert mine(text, add_special_tokens=special, verbose=False).input_ids == ids
        for skip in (True, False):
            right = theirs.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
            assert mine.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False) == right


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_cut_and_joined_alike(tiny_models: TinyModels, name: str) -> None:
    mine, theirs = both(tiny_models, name)
    for text in TEXTS:
        compare(mine, theirs, text)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
@pytest.mark.parametrize("name", ["target", "tiny llama that begins a text"])
def test_any_text_is_cut_and_joined_alike(tiny_models: TinyModels, name: str, text: str) -> None:
    compare(*tiny_models._once(("both tokenizers", name), lambda: both(tiny_models, name)), text)


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_the_same_and_every_one_is_written_alike(tiny_models: TinyModels, name: str) -> None:
    mine, theirs = both(tiny_models, name)
    assert mine.get_vocab() == theirs.get_vocab()
    assert mine.chat_template == theirs.chat_template
    for token in range(len(theirs)):
        for ids in ([token], [token, token], [70, token]):
            for skip in (True, False):
                right = theirs.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
                assert mine.decode(ids, skip_special_tokens=skip) == right


def test_tokens_that_do_not_exist_are_joined_alike(tiny_models: TinyModels) -> None:
    mine, theirs = both(tiny_models, "target")
    ids = [5, 2048, 99_999, 6]
    assert mine.decode(ids) == theirs.decode(ids, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_a_character_fails_alike(tiny_models: TinyModels, text: str) -> None:
    mine, theirs = both(tiny_models, "target")
    with pytest.raises(Exception, match=r".") as right:
        theirs(text)
    with pytest.raises(right.type):
        mine(text)


# Tokenizers left to transformers


def settled(tiny_models: TinyModels, home: Path, changes: dict[str, Any]) -> Path:
    """A copy of the target with changed fields in tokenizer_config.json; `...` removes a field."""
    folder = shutil.copytree(tiny_models.pair("neox").target, home / "changed")
    path = folder / "tokenizer_config.json"
    found = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps({key: found[key] for key in found if found[key] is not ...}), encoding="utf-8")
    return folder


STRANGE: dict[str, dict[str, Any]] = {
    "a chat template": {"chat_template": tiny.TEMPLATE},
    "a class of its own": {"tokenizer_class": "GPTNeoXTokenizer"},
    "no class": {"tokenizer_class": ...},
    "a token that begins every text": {"add_bos_token": True},
    "a token that ends every text": {"add_eos_token": True},
    "another space before a text": {"add_prefix_space": True},
    "a token of a further kind": {"extra_special_tokens": ["<|more|>"]},
    "tokens that are told otherwise": {"added_tokens_decoder": {"0": {"content": "<|begin|>", "special": False}}},
    "special tokens that are cut": {"split_special_tokens": True},
    "a special token that the file has not": {"eos_token": "<|end|>"},
    "a special token that is described": {"bos_token": {"content": "<|begin|>", "lstrip": True}},
    "spaces that are cleaned up": {"clean_up_tokenization_spaces": True},
    "code of its own": {"auto_map": {"AutoTokenizer": ["x.Y", None]}},
}


@pytest.mark.parametrize("name", STRANGE)
def test_settings_that_are_not_understood_are_left_to_transformers(
    tiny_models: TinyModels, tmp_path: Path, name: str
) -> None:
    assert known_tokenizer(tiny_models.pair("neox").target, "gpt_neox") is not None
    assert known_tokenizer(settled(tiny_models, tmp_path, STRANGE[name]), "gpt_neox") is None


@pytest.mark.parametrize("file", ["special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "tekken.json"])
def test_a_folder_that_says_more_is_left_to_transformers(tiny_models: TinyModels, tmp_path: Path, file: str) -> None:
    folder = settled(tiny_models, tmp_path, {})
    (folder / file).write_text("{}", encoding="utf-8")
    assert known_tokenizer(folder, "gpt_neox") is None


CUT = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}


@pytest.mark.parametrize(
    "changes",
    [{"truncation": CUT}, {"model": {"type": "WordLevel", "vocab": {}, "unk_token": ""}}, {"added_tokens": 7}],
    ids=["texts that are cut off", "words", "no list"],
)
def test_a_file_that_is_not_understood_is_left_to_transformers(
    tiny_models: TinyModels, tmp_path: Path, changes: dict[str, Any]
) -> None:
    folder = settled(tiny_models, tmp_path, {})
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    (folder / "tokenizer.json").write_text(json.dumps(content | changes), encoding="utf-8")
    assert known_tokenizer(folder, "gpt_neox") is None


def test_a_named_token_that_is_looked_for_otherwise_is_left_to_transformers(
    tiny_models: TinyModels, tmp_path: Path
) -> None:
    folder = settled(tiny_models, tmp_path, {"bos_token": "<|begin|>"})
    assert known_tokenizer(folder, "gpt_neox") is not None
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["added_tokens"][0]["lstrip"] = True
    path.write_text(json.dumps(content), encoding="utf-8")
    assert known_tokenizer(folder, "gpt_neox") is None


@pytest.mark.parametrize("family", ["qwen2", "mistral", "gpt2"])
def test_families_whose_tokenizers_transformers_makes_by_itself_are_left_to_it(
    tiny_models: TinyModels, family: str
) -> None:
    assert known_tokenizer(tiny_models.pair("neox").target, family) is None


def test_a_chat_is_asked_of_the_tokenizer_of_transformers(tiny_models: TinyModels) -> None:
    assert load_tokenizer(str(tiny_models.pair("chat").target)).chat_template == tiny.TEMPLATE
