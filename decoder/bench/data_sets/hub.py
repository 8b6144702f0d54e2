"""Files of data sets on the Hugging Face hub, downloaded once into its cache. Knows no data sets."""

import errno
from dataclasses import dataclass
from pathlib import Path

from decoder.bench.data_sets.quiet import quiet
from decoder.errors import PromptError, first_line

PATIENCE_S = 10.0
"""Seconds that the hub may take to answer the first request."""


@dataclass(frozen=True)
class HubFiles:
    """Files of a public data set."""

    repository: str
    pattern: str
    """Path in the repository; its last part may have wild cards."""


def local_files(files: HubFiles) -> list[Path]:
    """Local paths of the files by name, downloaded where missing.

    Raises:
        PromptError: The download failed, or the repository has no such files.
    """
    try:
        with quiet("huggingface_hub"):
            paths = _cached(files) or _downloaded(files)
    except Exception as error:  # noqa: BLE001 - names, networks and servers fail in many ways
        why, remedy = _explained(error, files)
        raise PromptError(
            f"cannot download {files.repository} from the Hugging Face hub: {why}; {remedy}, or let --data name a "
            "folder of data"
        ) from None
    if not paths:
        raise PromptError(f"{files.repository} on the Hugging Face hub no longer has {files.pattern}; give --data DIR")
    return paths


def _cached(files: HubFiles) -> list[Path]:
    """Paths in the cache, without a request to the hub; empty where missing."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - a folder needs no hub
    from huggingface_hub.errors import LocalEntryNotFoundError  # noqa: PLC0415 - as above

    try:
        folder = snapshot_download(files.repository, repo_type="dataset", local_files_only=True)
    except LocalEntryNotFoundError:
        return []
    return sorted(Path(folder).glob(files.pattern))


def _downloaded(files: HubFiles) -> list[Path]:
    from huggingface_hub import HfApi  # noqa: PLC0415 - a folder needs no hub
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415 - as above

    disable_progress_bars()  # else they are drawn across a screen
    hub = HfApi()
    # this request is not repeated as others are, so an absent network is known at once
    there = hub.dataset_info(files.repository, timeout=PATIENCE_S).siblings or []
    names = sorted(file.rfilename for file in there if Path(file.rfilename).match(files.pattern))
    return [Path(hub.hf_hub_download(files.repository, name, repo_type="dataset")) for name in names]


def _explained(error: Exception, files: HubFiles) -> tuple[str, str]:
    """(cause of a failed download, remedy)."""
    from huggingface_hub import errors  # noqa: PLC0415 - a folder needs no hub

    match error:
        case errors.OfflineModeIsEnabled():
            return "HF_HUB_OFFLINE is set, and the cache does not have it", "unset HF_HUB_OFFLINE"
        case errors.GatedRepoError():
            page = f"https://huggingface.co/datasets/{files.repository}"
            return "access must be granted", f"ask for it on {page} and log in with: hf auth login"
        case errors.RepositoryNotFoundError():
            return "it is not there, or not for everybody", "look whether HF_ENDPOINT and HF_TOKEN are right"
    match cause := _first_cause(error):
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return "the disk is full", "make room, or let HF_HOME name a folder on another disk"
        case OSError(filename=str()):
            return first_line(cause), "let HF_HOME name a folder that can be written"
    return first_line(cause), "check the network, or try again later"


def _first_cause(error: Exception) -> Exception:
    """First error of a chain of causes."""
    return _first_cause(error.__cause__) if isinstance(error.__cause__, Exception) else error
