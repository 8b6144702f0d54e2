"""Labelled roots in files: one a prompt and sampling setting, each written whole, so that collecting can go on later.

Knows nothing of how roots are labelled.
"""

from dataclasses import dataclass
from pathlib import Path

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
from decoder.whole_files import write_whole

FORMAT = 1
MANIFEST = "collection.json"
PART = 5
"""One prompt in so many is kept for validation, and another one for judging what was trained."""
VALIDATION, TEST = PART - 2, PART - 1


class Plan(msgspec.Struct, frozen=True):
    """What is collected: all that labels depend on, but for the pair and the prompts."""

    verifiers: tuple[str, ...] = ("specinfer", "traversal")
    temperatures: tuple[float, ...] = (0.6, 1.0)
    top_ps: tuple[float, ...] = (1.0,)
    new_tokens: int = 96
    """Sampled after each prompt."""
    every: int = 16
    """Tokens from root to root."""
    trees: int = 4
    """Independent draws below each root, over which labels are means."""
    seed: int = 0

    @property
    def settings(self) -> list[Sampling]:
        """All combinations."""
        return [Sampling(temperature, 0, top_p) for temperature in self.temperatures for top_p in self.top_ps]


class Manifest(msgspec.Struct, frozen=True):
    """What the files of a folder belong to."""

    format: int
    pair: Fingerprint
    plan: Plan
    prompts: int
    digest: str
    """Of the prompts."""


@dataclass(frozen=True)
class Roots:
    """Labelled roots."""

    hidden: tuple[Float[Tensor, "R X"], ...]
    scalars: Float[Tensor, "R F"]
    prompt: Int[Tensor, "R"]
    """The number of the prompt."""
    setting: Int[Tensor, "R"]
    """The number of the sampling setting."""
    tokens: dict[str, Float[Tensor, "R A"]]
    """By verifier: expected block efficiency of each action."""
    latency: dict[str, Float[Tensor, "R S"]]
    """By verifier: see `decoder.selector.latency`."""

    def __len__(self) -> int:
        return len(self.scalars)

    def of(self, chosen: Bool[Tensor, "R"] | Int[Tensor, "N"]) -> "Roots":
        """Some of them."""
        return Roots(
            tuple(rows[chosen] for rows in self.hidden),
            self.scalars[chosen],
            self.prompt[chosen],
            self.setting[chosen],
            {name: rows[chosen] for name, rows in self.tokens.items()},
            {name: rows[chosen] for name, rows in self.latency.items()},
        )

    def part(self, number: int) -> "Roots":
        """Those of the prompts of a part: `VALIDATION` or `TEST`."""
        return self.of(self.prompt % PART == number)

    def training(self) -> "Roots":
        """Those of all other prompts."""
        return self.of(self.prompt % PART < VALIDATION)

    def fastest(self, verifier: str) -> Float[Tensor, "S"]:
        """What the parts of a round took when least else was in the way, since disturbances only ever add.

        All of one measurement: what lies between passes was fitted together.
        """
        found = self.latency[verifier]
        return found[round_seconds(found).sum(-1).argmin()]


def round_seconds(found: Float[Tensor, "R S"]) -> Float[Tensor, "R A"]:
    """Seconds of a round of each action; see `decoder.selector.latency`."""
    return found @ torch.from_numpy(latency.counts()).to(found.dtype).T


def shard(folder: Path, number: int) -> Path:
    """Where the roots of a prompt and a setting are kept."""
    return folder / f"roots-{number:06d}.safetensors"


def write_shard(path: Path, roots: Roots) -> None:
    """Keeps some roots; raises ConfigError where they cannot be written."""
    tensors = {f"hidden.{place}": rows.half() for place, rows in enumerate(roots.hidden)}
    tensors |= {"scalars": roots.scalars, "prompt": roots.prompt, "setting": roots.setting}
    tensors |= {f"tokens.{name}": rows.float() for name, rows in roots.tokens.items()}
    tensors |= {f"latency.{name}": rows.float() for name, rows in roots.latency.items()}
    write_whole(path, save({name: rows.contiguous() for name, rows in tensors.items()}))


def read_manifest(folder: Path) -> Manifest:
    """What a folder holds; raises ConfigError where it holds no collection."""
    try:
        found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except OSError as error:
        raise ConfigError(
            f"{shortened(folder)} holds no collection: {error.strerror}; make one with dynatui selector collect"
        ) from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{shortened(folder / MANIFEST)} is damaged: {error}; collect anew") from None
    require(found.format == FORMAT, f"{shortened(folder)} was collected by another version of dynatui; collect anew")
    return found


def begin(folder: Path, manifest: Manifest) -> None:
    """Takes a folder for a collection, or goes on with the one that it holds.

    Raises:
        ConfigError: It holds another one, or cannot be written.
    """
    if (folder / MANIFEST).exists():
        found = read_manifest(folder)
        named = [name for name in manifest.__struct_fields__ if getattr(found, name) != getattr(manifest, name)]
        require(
            not named,
            f"{shortened(folder)} holds a collection of another {' and '.join(named)}; name another folder, or give "
            "what it was begun with",
        )
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {shortened(folder)}: {error.strerror}; name another folder") from None
    write_whole(folder / MANIFEST, msgspec.json.encode(manifest))


def load(folder: Path) -> Roots:
    """All roots of a folder; raises ConfigError where there are none, or a file is damaged."""
    paths = sorted(folder.glob("roots-*.safetensors"))
    require(bool(paths), f"{shortened(folder)} holds no labelled roots; go on with dynatui selector collect")
    parts = [_read(path) for path in paths]
    names = parts[0].keys()
    whole = {name: torch.cat([part[name] for part in parts]) for name in names}
    hidden = sorted(name for name in names if name.startswith("hidden."))
    return Roots(
        tuple(whole[name].float() for name in hidden),
        whole["scalars"],
        whole["prompt"],
        whole["setting"],
        _by_verifier(whole, "tokens."),
        _by_verifier(whole, "latency."),
    )


def _read(path: Path) -> dict[str, Tensor]:
    try:
        found: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{shortened(path)} is damaged: {first_line(error)}; remove it and collect again") from None
    return found


def _by_verifier(whole: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): rows for name, rows in whole.items() if name.startswith(prefix)}
