"""Files of models on the Hugging Face hub, and reasons why a tokenizer's files cannot be read."""

import errno
import math
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from decoder.errors import ModelError, first_line, shortened
from decoder.models.load_progress import Tell
from decoder.models.names import repository, revision
from decoder.system.libraries import quiet

INSTALL = "pip install 'dynatui[sentencepiece]'"
_SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
_OTHERS = ("tokenizer.json", "vocab.json", "vocab.txt", "tekken.json", "tiktoken.model")
"""Files of tokenizers other than SentencePiece; messages name only the first."""
TOKENIZER_FILES = (*_OTHERS, *_SENTENCEPIECE)
"""Files of which a tokenizer needs at least one."""
_PACKAGES = ("sentencepiece", "google.protobuf")
"""Packages with which transformers reads a SentencePiece model."""


_LFS_BEGIN, _LONGEST_POINTER = b"version https://git-lfs.github.com/spec/", 1024
"""First bytes of a Git LFS pointer, and the size in bytes that it never exceeds, by its specification."""


def is_pointer(path: Path) -> bool:
    """Whether a file is a Git LFS pointer, which a clone without Git LFS has in place of a large file."""
    try:
        return path.stat().st_size < _LONGEST_POINTER and path.read_bytes().startswith(_LFS_BEGIN)
    except OSError:
        return False


def tokenizer_fault(folder: Path) -> str:
    """Why a folder's tokenizer cannot be read, with a remedy; empty if there are files other than SentencePiece's."""
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


PATIENCE_S = 5.0
"""Longest wait for an answer of the hub."""
_AGAIN_S = 60.0
"""Time after a failed request about a model during which the request is not repeated."""
CONFIG, ADAPTER = "config.json", "adapter_config.json"
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_SMALL = frozenset((".json", ".model", ".jinja", ".txt", ".tiktoken"))
"""Suffixes of configurations and tokenizers, which are downloaded together."""
LIBRARY = "huggingface_hub"

T = TypeVar("T")

tell: ContextVar[Tell] = ContextVar("tell", default=lambda _: None)
"""Called before each wait for the hub, with a description of the wait."""


@dataclass(frozen=True)
class _Listing:
    """Relative paths of a model's files on the hub at a revision."""

    files: frozenset[str]
    revision: str
    commit: str | None


_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"(?!.*\.\.)[\w.-]+(/[\w.-]+)*", re.ASCII)
_listings: dict[str, _Listing] = {}
_failures: dict[str, tuple[float, str]] = {}
"""Time at which the latest request about a model failed (`time.monotonic`), and the error message."""


def is_hub_id(name: str) -> bool:
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415 - a folder needs no hub
    from huggingface_hub.file_download import repo_folder_name  # noqa: PLC0415 - as above

    try:
        repo_folder_name(repo_id=repository(name), repo_type="model")
    except HFValidationError:
        return False
    return "@" not in name or _REVISION.fullmatch(revision(name)) is not None


def cached_folder(name: str) -> Path | None:
    from huggingface_hub import constants  # noqa: PLC0415 - a folder needs no hub
    from huggingface_hub.file_download import repo_folder_name  # noqa: PLC0415 - as above

    place = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository(name), repo_type="model")
    asked = revision(name)
    commit = asked if _COMMIT.fullmatch(asked) else _listings[name].commit if name in _listings else None
    if commit is None:
        with suppress(OSError, ValueError):
            commit = (place / "refs" / (asked or "main")).read_text(encoding="utf-8").strip()
    folder = place / "snapshots" / (commit or "")
    return folder if commit and folder.is_dir() else None


def hub_file(name: str, part: str) -> Path | None:
    """A file of a hub id, downloaded if the cache lacks it; None if the hub has no such file, or if a cached model is
    complete without the file.

    Raises ModelError if the request for a missing file fails.
    """
    _ask_for_commit(name)
    folder = cached_folder(name)
    if folder and (folder / part).is_file():
        return folder / part
    return _downloaded(name, part) if folder is None or _lacks(folder, part) else None


def _ask_for_commit(name: str) -> None:
    """Requests the current commit of a branch or tag from the hub once; if the request fails, uses the cached commit.
    Raises ModelError if the request fails and no commit is cached.
    """
    if not revision(name) or _COMMIT.fullmatch(revision(name)) or name in _listings or name in _failures:
        return
    try:
        _listing(name)
    except ModelError:
        if cached_folder(name) is None:
            raise
        tell.get()(f"the Hugging Face hub cannot be asked about {shortened(name)}: its cached commit is used")


def folder_with(name: str, part: str) -> str:
    """Folder with the files that loading `part` (configuration, weights, tokenizer) needs: for a hub id, its folder in
    the cache; for a local folder, the folder itself.

    Raises ModelError if the request for a missing file fails.
    """
    if Path(name).is_dir():
        return name
    if not is_hub_id(name):
        raise ModelError(
            f"there is no folder {shortened(name)}; give an existing folder or a hub id such as owner/model"
        )
    if part == "tokenizer":
        _ask_for_commit(name)
        folder = cached_folder(name)
        if folder is None or not any((folder / each).is_file() for each in TOKENIZER_FILES):
            _downloaded(name, CONFIG)
    else:
        hub_file(name, CONFIG)
    found = cached_folder(name)
    if found is None:
        raise _fault(name, "it has none of the files of a model", "give another hub id, or a folder")
    return str(found)


def answered(call: Callable[[], T]) -> T:
    """Result of a request; raises TimeoutError after `PATIENCE_S` seconds, even if a name server does not answer. The
    time limit of the request itself must be longer, so that the error is the same for all causes.
    """
    results: list[T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - raised again below, in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"it does not answer within {PATIENCE_S:g} s")
    return results[0]


def explained(error: Exception, kind: str, page: str) -> tuple[str, str]:
    """Cause of a failed request and remedy. `kind` names what was requested; `page` is the URL for access requests."""
    from huggingface_hub import errors  # noqa: PLC0415 - a folder needs no hub

    match error:
        case errors.OfflineModeIsEnabled():
            return f"HF_HUB_OFFLINE is set, and the cache lacks the {kind}", "unset HF_HUB_OFFLINE"
        case errors.GatedRepoError():
            return "access must be granted", f"ask for access on {page} and log in with: hf auth login"
        case errors.RepositoryNotFoundError():
            return f"the {kind} does not exist, or is not public", "check HF_ENDPOINT and HF_TOKEN"
    cause = error
    while isinstance(cause.__cause__, Exception):
        cause = cause.__cause__
    match cause:
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return "the disk is full", "free some space, or set HF_HOME to a folder on another disk"
        case OSError(filename=str()):
            return first_line(cause), "set HF_HOME to a folder that can be written"
    return first_line(cause), "check the network, or try again later"


def _lacks(folder: Path, part: str) -> bool:
    if (folder / ADAPTER).is_file() and part in (CONFIG, _WEIGHTS, _INDEX):
        return False
    if part == _WEIGHTS:
        return not (folder / _INDEX).is_file()
    if part == _INDEX:
        return not (folder / _WEIGHTS).is_file()
    return part == CONFIG or part.endswith(".safetensors")


def _downloaded(name: str, part: str) -> Path | None:
    """Downloads a file, and with it all configuration and tokenizer files that the cache lacks."""
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - a folder needs no hub
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415 - as above

    listing = _listing(name)
    folder = cached_folder(name)
    wanted = {file for file in listing.files if is_small(file)}
    missing = {part, *wanted} & listing.files
    missing -= {file for file in missing if folder and (folder / file).is_file()}
    disable_progress_bars()  # progress bars would overwrite the terminal app's screen
    path: Path | None = None
    try:
        with quiet(LIBRARY):
            for file in sorted(missing):
                got = Path(hf_hub_download(repository(name), file, revision=listing.revision, etag_timeout=PATIENCE_S))
                path = got if file == part else path
    except Exception as error:  # noqa: BLE001 - networks, servers and disks fail in many ways
        raise _failure(name, error) from None
    return path


def is_small(file: str) -> bool:
    """Whether a file is a configuration or a part of a tokenizer, by its path within a model."""
    folder = Path(file).parent.as_posix()
    return Path(file).suffix in _SMALL and folder in (".", "additional_chat_templates")


def _listing(name: str) -> _Listing:
    """Files of a model on the hub, requested once: at the named revision, else at the cached commit, else at main."""
    if name in _listings:
        return _listings[name]
    failed_s, message = _failures.get(name, (-math.inf, ""))
    if time.monotonic() - failed_s < _AGAIN_S:
        raise ModelError(message)
    folder = cached_folder(name)
    wanted = revision(name) or (folder.name if folder else "main")
    tell.get()(f"asking the Hugging Face hub about {shortened(name)}, at most {PATIENCE_S:g} s")
    try:
        from huggingface_hub import HfApi  # noqa: PLC0415 - a folder needs no hub

        with quiet(LIBRARY):
            info: Any = answered(lambda: HfApi().model_info(repository(name), revision=wanted, timeout=2 * PATIENCE_S))
    except Exception as error:  # noqa: BLE001 - names, networks and servers fail in many ways
        failure = _failure(name, error)
        _failures[name] = time.monotonic(), str(failure)
        raise failure from None
    _listings[name] = _Listing(frozenset(file.rfilename for file in info.siblings or ()), wanted, info.sha)
    return _listings[name]


def _failure(name: str, error: Exception) -> ModelError:
    return _fault(name, *explained(error, "model", f"https://huggingface.co/{repository(name)}"))


def _fault(name: str, why: str, remedy: str) -> ModelError:
    folder = cached_folder(name)
    cached, part = ("only partly", "the rest") if folder else ("not", "it")
    return ModelError(
        f"cannot load {shortened(name)}: it is {cached} in the local cache, and {part} cannot be downloaded from the "
        f"Hugging Face hub: {why}; {remedy}, or give a folder"
    )
