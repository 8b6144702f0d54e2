"""Download of data files from the Hugging Face hub into its local cache; each file is downloaded only once.

This module does not depend on the data set.
"""

from dataclasses import dataclass
from pathlib import Path

from decoder.errors import PromptError
from decoder.models.hub import LIBRARY, PATIENCE_S, answered, explained
from decoder.system.quiet import quiet


@dataclass(frozen=True)
class HubFiles:
    repository: str
    pattern: str
    """Path of the files within the repository; the file name may contain wildcards."""


def local_files(files: HubFiles) -> list[Path]:
    """Local paths of the files, sorted by name; missing files are downloaded."""
    try:
        with quiet(LIBRARY):
            paths = _cached(files) or _downloaded(files)
    except Exception as error:  # noqa: BLE001 - names, networks and servers fail in many ways
        page = f"https://huggingface.co/datasets/{files.repository}"
        why, remedy = explained(error, "data set", page)
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
    info = answered(lambda: hub.dataset_info(files.repository, timeout=2 * PATIENCE_S))
    there = info.siblings or []
    names = sorted(file.rfilename for file in there if Path(file.rfilename).match(files.pattern))
    return [
        Path(hub.hf_hub_download(files.repository, name, repo_type="dataset", etag_timeout=PATIENCE_S))
        for name in names
    ]
