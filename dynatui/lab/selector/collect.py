"""Collections of labelled roots, and their files. The target continues a user's prompts, and all tree shapes are
labelled at regularly spaced tokens of each text, the roots. Each prompt and sampling setting has its own file and seed,
so a collection can resume.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from decoder.draft.delayed_shape import LONGEST, MOST
from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.engine import Engine
from decoder.errors import ConfigError, PromptError, first_line, quoted, require, shortened
from decoder.models.pair import Pair
from decoder.models.text import encode_prompts
from decoder.prompt import AnyPrompt
from decoder.sampling.settings import Sampling, Schedule
from decoder.selector import latency
from decoder.selector.policy import Fingerprint, Root, fingerprint, scalars
from decoder.system.whole_files import made_folder, write_whole
from decoder.verify.lossless.random_generator import PhiloxGenerator
from dynatui.lab.bench import Progress
from dynatui.lab.bench.labels import LABELLED, TextRoots
from dynatui.lab.bench.protocol import continued

FORMAT = 1
MANIFEST = "collection.json"
PART = 5
"""Number of parts into which prompts are divided: one part for validation, one for the test, the rest for training."""
VALIDATION, TEST = PART - 2, PART - 1


class CollectionPlan(msgspec.Struct, frozen=True):
    """Settings of a collection. They determine the labels, together with the pair and the prompts."""

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
    """Raises ConfigError if the file cannot be written."""
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


MEASURED_EVERY_S = 30.0
"""Seconds after which pass times are measured again, since other programs change the load of the machine."""

LabelledRoot: TypeAlias = tuple[Root, dict[str, Float[np.ndarray, "A"]]]
"""(root, {verifier: expected tokens per round of each shape})."""


def require_plan(plan: CollectionPlan) -> None:
    """Raises ConfigError if roots cannot be labelled for a verifier, or a sampling setting is out of bounds."""
    for name in plan.verifiers:
        known = ", ".join(LABELLED)
        require(name in LABELLED, f"roots cannot be labelled for verifier {quoted(name)}; choose from {known}")
    _ = plan.settings


def collect(engine: Engine, prompts: Sequence[AnyPrompt], plan: CollectionPlan, folder: Path) -> Iterator[Progress]:
    """Labels roots, and yields at the beginning and after each part, which is one prompt with one sampling setting."""
    require_plan(plan)
    pair, settings = engine.pair.observed(), plan.settings
    digest = hashlib.sha256("\0".join(map(_identity, prompts)).encode()).hexdigest()
    begin(folder, Manifest(FORMAT, fingerprint(pair), plan, len(prompts), digest))
    shards = [shard(folder, number) for number in range(len(prompts) * len(settings))]
    done, roots, latencies = sum(each.exists() for each in shards), 0, _latencies(engine.pair, plan)

    def step() -> Progress:
        return Progress(f"{done} of {len(shards)} texts done, {roots} roots labelled in this run", done / len(shards))

    yield step()
    for number, path in enumerate(shards):
        if path.exists():
            continue
        prompt, setting = divmod(number, len(settings))
        seed = plan.seed + number
        (text_ids,) = encode_prompts(
            pair.tokenizer, [prompts[prompt]], plan.new_tokens + LONGEST, pair.context, limit=pair.limit
        )
        sampled = engine.sampled(seed, Schedule(settings[setting]))
        text = [*text_ids, *continued(sampled, text_ids, plan.new_tokens)]
        labelled = list(_label_roots(pair, text, len(text_ids), settings[setting], plan, seed))
        if labelled:
            write_shard(path, _concatenated(labelled, prompt, setting, next(latencies)))
        done, roots = done + 1, roots + len(labelled)
        yield step()
    if not any(each.exists() for each in shards):
        raise PromptError("every text ended before its first root; give other prompts or a smaller --every")


def _latencies(pair: Pair, plan: CollectionPlan) -> Iterator[dict[str, Float[np.ndarray, "S"]]]:
    """Yields the current seconds of each part of a round, by verifier; see `decoder.selector.latency`."""
    while True:
        passes = latency.passes(measure_costs(pair, plan.new_tokens))
        seconds = {name: passes.copy() for name in plan.verifiers}
        for name in plan.verifiers:
            seconds[name][latency.ROUND :] = latency.between_passes(
                pair.vocabulary, name, plan.settings[0], pair.target.device
            )
        measured_s = time.monotonic()
        while time.monotonic() - measured_s < MEASURED_EVERY_S:
            yield seconds


def _label_roots(
    pair: Pair, text: Sequence[int], prompt_length: int, sampling: Sampling, plan: CollectionPlan, seed: int
) -> Iterator[LabelledRoot]:
    roots = TextRoots(pair, sampling, MOST, len(text), PhiloxGenerator(seed, 1))
    for length in range(prompt_length + plan.every, len(text) + 1, plan.every):
        root = roots.advance(text[:length])
        root_draws = [roots.drawn() for _ in range(plan.trees)]
        labels = {name: [draws.expected_tokens(name) for draws in root_draws] for name in plan.verifiers}
        yield root, {name: np.mean(tokens, 0) for name, tokens in labels.items()}


def _concatenated(
    labelled: Sequence[LabelledRoot], prompt: int, setting: int, part_seconds: dict[str, Float[np.ndarray, "S"]]
) -> Roots:
    first, count = next(iter(part_seconds.values())), len(labelled)
    seconds = float(first[latency.DRAFT.start]), float(first[latency.VERIFY.start])
    tensors = {
        "scalars": torch.stack([scalars(root, *seconds) for root, _ in labelled]),
        "prompt": torch.full((count,), prompt),
        "setting": torch.full((count,), setting),
    }
    for number, rows in enumerate(zip(*(root.hidden for root, _ in labelled), strict=True)):
        tensors[f"hidden.{number}"] = torch.stack(rows)
    for name, times in part_seconds.items():
        tensors[f"tokens.{name}"] = torch.from_numpy(np.stack([tokens[name] for _, tokens in labelled]))
        tensors[f"latency.{name}"] = torch.from_numpy(times).repeat(count, 1)
    return Roots(tensors)


def _identity(prompt: AnyPrompt) -> str:
    """Text that differs between different prompts: plain text itself, or the JSON of a structured prompt."""
    return prompt if isinstance(prompt, str) else msgspec.json.encode(prompt).decode()
