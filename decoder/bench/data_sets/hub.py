"""Download of data files from the Hugging Face hub into its local cache; each file is downloaded only once.

This module does not depend on the data set.
"""

import errno
from dataclasses import dataclass
from pathlib import Path

from decoder.bench.data_sets.quiet import quiet
from decoder.errors import PromptError, first_line

PATIENCE_S = 10.0
"""Timeout of the first request to the hub, in seconds."""


@dataclass(frozen=True)
class HubFiles:
    """Data files in a public repository of the Hugging Face hub."""

    repository: str
    pattern: str
    """Path of the files within the repository; the file name may contain wildcards."""


def local_files(files: HubFiles) -> list[Path]:
    """Local paths of the files, sorted by name; missing files are downloaded.

    Raises:
        PromptError: The download failed, or the repository has no such files.
    """
    try:
        with quiet("huggingface_hub"):
            paths = _cached(files) or _downloaded(files)
    except Exception as error:  # noqa: BLE001 - names, networks and servers fail in many ways
        why, remedy = _explained(error, files)
        raise PromptError(
            f"cannot download {files.repository} from the Hugging Face hub: {why}; {remedy}, or set --data to a "
            "folder of data"
        ) from None
    if not paths:
        raise PromptError(
            f"{files.repository} on the Hugging Face hub no longer has {files.pattern}; set --data to a folder"
        )
    return paths


def _cached(files: HubFiles) -> list[Path]:
    """Paths of the files in the local cache, without a request to the hub; empty if they are not cached."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - a data folder needs no hub
    from huggingface_hub.errors import LocalEntryNotFoundError  # noqa: PLC0415 - as above

    try:
        folder = snapshot_download(files.repository, repo_type="dataset", local_files_only=True)
    except LocalEntryNotFoundError:
        return []
    return sorted(Path(folder).glob(files.pattern))


def _downloaded(files: HubFiles) -> list[Path]:
    from huggingface_hub import HfApi  # noqa: PLC0415 - a data folder needs no hub
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415 - as above

    disable_progress_bars()  # progress bars would overwrite the terminal app's screen
    hub = HfApi()
    # huggingface_hub retries downloads, but not this request, so without a network this request fails at once
    there = hub.dataset_info(files.repository, timeout=PATIENCE_S).siblings or []
    names = sorted(file.rfilename for file in there if Path(file.rfilename).match(files.pattern))
    return [Path(hub.hf_hub_download(files.repository, name, repo_type="dataset")) for name in names]


def _explained(error: Exception, files: HubFiles) -> tuple[str, str]:
    """Cause of a failed download, and advice for the user."""
    from huggingface_hub import errors  # noqa: PLC0415 - a data folder needs no hub

    match error:
        case errors.OfflineModeIsEnabled():
            return "HF_HUB_OFFLINE is set, and the cache lacks the data set", "unset HF_HUB_OFFLINE"
        case errors.GatedRepoError():
            page = f"https://huggingface.co/datasets/{files.repository}"
            return "access must be granted", f"ask for access on {page} and log in with: hf auth login"
        case errors.RepositoryNotFoundError():
            return "the data set does not exist, or is not public", "check HF_ENDPOINT and HF_TOKEN"
    match cause := _first_cause(error):
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return "the disk is full", "make room, or set HF_HOME to a folder on another disk"
        case OSError(filename=str()):
            return first_line(cause), "set HF_HOME to a folder that can be written"
    return first_line(cause), "check the network, or try again later"


def _first_cause(error: Exception) -> Exception:
    """Original exception, at the end of the chain of `__cause__`."""
    return _first_cause(error.__cause__) if isinstance(error.__cause__, Exception) else error
