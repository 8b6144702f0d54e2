"""A tokenizer that cannot be read is told with what is missing, a file or a package."""

from pathlib import Path

import pytest

from decoder.errors import ModelError
from decoder.models import hub as tokenizer_files
from decoder.models.checkpoints import EMBEDDED_TARGET, load_tokenizer


def folder_with(home: Path, *parts: str) -> Path:
    (home / "config.json").write_bytes((EMBEDDED_TARGET / "config.json").read_bytes())
    for part in parts:
        (home / part).write_bytes(b"no tokenizer")
    return home


def fault_of(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_tokenizer(str(folder))
    return str(caught.value)


def test_a_folder_without_tokenizer_says_which_file_is_missing(tmp_path: Path) -> None:
    assert fault_of(folder_with(tmp_path)).endswith(
        "there is neither tokenizer.json nor tokenizer.model beside it; copy the tokenizer's files there"
    )


@pytest.mark.parametrize(
    ("missing", "packages"),
    [
        (("sentencepiece", "google.protobuf"), "the packages sentencepiece and protobuf"),
        (("google.protobuf",), "the package protobuf"),
    ],
)
@pytest.mark.parametrize("part", ["tokenizer.model", "spiece.model"])
def test_a_sentencepiece_model_alone_names_the_packages_and_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], packages: str, part: str
) -> None:
    monkeypatch.setattr(tokenizer_files, "_installed", lambda module: module not in missing)
    fault = tokenizer_files.tokenizer_fault(folder_with(tmp_path, part))
    assert fault == f"its only file is {part}, and reading it takes {packages}; pip install 'dynatui[sentencepiece]'"


def test_a_damaged_sentencepiece_model_is_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_files, "_installed", lambda _: True)
    fault = tokenizer_files.tokenizer_fault(folder_with(tmp_path, "tokenizer.model"))
    assert fault == "tokenizer.model cannot be read as a SentencePiece model; download it again"


def test_other_tokenizers_keep_the_reason_of_their_library(tmp_path: Path) -> None:
    assert tokenizer_files.tokenizer_fault(folder_with(tmp_path, "tokenizer.json")) == ""
