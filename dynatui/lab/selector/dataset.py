"""Files of labelled roots: one complete file per prompt and sampling setting, so that a collection can resume.
Independent of how roots are labelled.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec
import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from decoder.errors import ConfigError, first_line, require, shortened
from decoder.sampling.settings import Sampling
from decoder.selector import latency
from decoder.selector.stored import Fingerprint
from decoder.system.whole_files import made_folder, write_whole

FORMAT = 1
MANIFEST = "collection.json"
PART = 5
"""Number of parts into which prompts are divided: one part for validation, one for the test, the rest for training."""
VALIDATION, TEST = PART - 2, PART - 1
Step: TypeAlias = tuple[str, float]
"""Progress after a step of a collection or a training: a line, and the share of the work that is done."""


class CollectionPlan(msgspec.Struct, frozen=True):
    """Settings of a collection. Together with the pair and the prompts, these settings determine the labels."""

    verifiers: tuple[str, ...] = ("specinfer", "traversal")
    temperatures: tuple[float, ...] = (0.6, 1.0)
    top_ps: tuple[float, ...] = (1.0,)
    new_tokens: int = 96
    """Number of tokens sampled after each prompt."""
    every: int = 16
    """Distance between successive roots of a text, in tokens."""
    trees: int = 4
    """Number of independent trees below each root; labels are means over these trees."""
    seed: int = 0

    @property
    def settings(self) -> list[Sampling]:
        return [Sampling(temperature, 0, top_p) for temperature in self.temperatures for top_p in self.top_ps]


class Manifest(msgspec.Struct, frozen=True):
    format: int
    pair: Fingerprint
    plan: CollectionPlan
    prompts: int
    digest: str
    """SHA-256 of the prompts."""


@dataclass(frozen=True)
class Roots:
    """R labelled roots: tensors in parallel, under the names that they have in a file."""

    tensors: dict[str, Tensor]
    """`scalars`, `prompt`, `setting` (both of shape R), hidden.0, hidden.1, ..., and tokens.V and latency.V of each
    verifier V.
    """

    def __len__(self) -> int:
        return len(self.scalars)

    @property
    def hidden(self) -> tuple[Float[Tensor, "R X"], ...]:
        return tuple(rows for name, rows in sorted(self.tensors.items()) if name.startswith("hidden."))

    @property
    def scalars(self) -> Float[Tensor, "R F"]:
        """Scalar features; see `decoder.selector.policy.SCALARS`."""
        return self.tensors["scalars"]

    @property
    def settings(self) -> list[int]:
        """Number of each root's sampling setting."""
        numbers: list[int] = self.tensors["setting"].tolist()
        return numbers

    def by_setting(self) -> dict[int, "Roots"]:
        """Roots by the number of their sampling setting."""
        numbers = self.tensors["setting"]
        return {number: self.select(numbers == number) for number in numbers.unique().tolist()}

    @property
    def verifiers(self) -> list[str]:
        return [name.removeprefix("tokens.") for name in self.tensors if name.startswith("tokens.")]

    def tokens(self, verifier: str) -> Float[Tensor, "R A"]:
        """Expected tokens per round of each action (tree shape); NaN if the shape cannot be verified."""
        return self.tensors[f"tokens.{verifier}"]

    def select(self, selection: Bool[Tensor, "R"] | Int[Tensor, "N"]) -> "Roots":
        return Roots({name: rows[selection] for name, rows in self.tensors.items()})

    def part(self, number: int) -> "Roots":
        return self.select(self.tensors["prompt"] % PART == number)

    def training(self) -> "Roots":
        return self.select(self.tensors["prompt"] % PART < VALIDATION)

    def fastest(self, verifier: str) -> Float[Tensor, "S"]:
        """Seconds of each part of a round (see `decoder.selector.latency`), from the measurement with the fastest
        rounds, which was disturbed least. All parts are from one measurement, because the times of the work between
        passes were fitted together.
        """
        part_seconds = self.tensors[f"latency.{verifier}"]
        return part_seconds[round_seconds(part_seconds).sum(-1).argmin()]


def round_seconds(part_seconds: Float[Tensor, "*R S"]) -> Float[Tensor, "*R A"]:
    """Seconds of a round of each action, from the seconds of the round's parts; see `decoder.selector.latency`."""
    return part_seconds @ torch.from_numpy(latency.counts()).to(part_seconds.dtype).T


def shard(folder: Path, number: int) -> Path:
    return folder / f"roots-{number:06d}.safetensors"


def write_shard(path: Path, roots: Roots) -> None:
    """Writes roots to a file; raises ConfigError if the file cannot be written."""
    kinds = {"hidden": torch.float16, "tokens": torch.float32, "latency": torch.float32}
    tensors = {name: rows.to(kinds.get(name.partition(".")[0], rows.dtype)) for name, rows in roots.tensors.items()}
    write_whole(path, save({name: rows.contiguous() for name, rows in tensors.items()}))


def read_manifest(folder: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except OSError as error:
        raise ConfigError(
            f"{shortened(folder)} holds no collection: {error.strerror}; make one with dynatui selector collect"
        ) from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{shortened(folder / MANIFEST)} is damaged: {error}; collect the roots again") from None
    require(
        manifest.format == FORMAT,
        f"{shortened(folder)} was collected by another version of dynatui; collect the roots again",
    )
    return manifest


def begin(folder: Path, manifest: Manifest) -> None:
    """Begins or resumes a collection; raises ConfigError if the folder holds another collection or is not writable."""
    if (folder / MANIFEST).exists():
        earlier = read_manifest(folder)
        differing = [name for name in manifest.__struct_fields__ if getattr(earlier, name) != getattr(manifest, name)]
        require(
            not differing,
            f"{shortened(folder)} holds a collection that was made with another {' and '.join(differing)}; name a new "
            "folder, or give the values of that collection",
        )
        return
    write_whole(made_folder(folder) / MANIFEST, msgspec.json.encode(manifest))


def load(folder: Path) -> Roots:
    paths = sorted(folder.glob("roots-*.safetensors"))
    require(bool(paths), f"{shortened(folder)} holds no labelled roots; run dynatui selector collect again")
    parts = [_read(path) for path in paths]
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return Roots({name: rows.float() if name.startswith("hidden.") else rows for name, rows in whole.items()})


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        fault = f"{shortened(path)} is damaged: {first_line(error)}; remove the file and collect its roots again"
        raise ConfigError(fault) from None
