"""Why the tokenizer of a checkpoint cannot be read: files or packages that are missing. Knows no tokenizer."""

from importlib.util import find_spec
from pathlib import Path

INSTALL = "pip install 'dynatui[sentencepiece]'"
_SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
_OTHERS = ("tokenizer.json", "vocab.json", "vocab.txt", "tekken.json", "tiktoken.model")
"""The first alone is sufficient for all of them."""
TOKENIZER_FILES = (*_OTHERS, *_SENTENCEPIECE)
"""Files of which a tokenizer needs one."""
_PACKAGES = ("sentencepiece", "google.protobuf")
"""With which transformers reads a SentencePiece model."""


def tokenizer_fault(folder: Path) -> str:
    """Reason and remedy, if a folder has no tokenizer, or a SentencePiece model that cannot be read; else empty."""
    if any((folder / part).is_file() for part in _OTHERS):
        return ""
    model = next((part for part in _SENTENCEPIECE if (folder / part).is_file()), None)
    if model is None:
        return f"there is neither {_OTHERS[0]} nor {_SENTENCEPIECE[0]} beside it; copy the tokenizer's files there"
    if missing := [module.rpartition(".")[2] for module in _PACKAGES if not _installed(module)]:
        packages = f"the package {missing[0]}" if len(missing) == 1 else f"the packages {' and '.join(missing)}"
        return f"its only file is {model}, and reading it takes {packages}; {INSTALL}"
    return f"{model} cannot be read as a SentencePiece model; download it again"


def _installed(module: str) -> bool:
    package, _, part = module.partition(".")
    return find_spec(package) is not None and (not part or find_spec(module) is not None)
