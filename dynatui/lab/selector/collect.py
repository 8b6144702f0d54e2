"""Collects labelled roots: samples texts that continue a user's prompts, and labels all tree shapes at regularly spaced
tokens of each text, the roots. Each prompt and sampling setting has its own seed, so a collection can resume.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
import torch
from jaxtyping import Float

from decoder.draft.delayed_shape import LONGEST, MOST
from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.engine import Engine
from decoder.errors import PromptError, quoted, require
from decoder.models.pair import Pair
from decoder.models.text import encode_prompts
from decoder.prompt import AnyPrompt
from decoder.sampling.settings import Sampling, Schedule
from decoder.selector import latency
from decoder.selector.policy import Root, scalars
from decoder.selector.stored import fingerprint
from decoder.verify.lossless.random_generator import PhiloxGenerator
from dynatui.lab.selector.dataset import FORMAT, CollectionPlan, Manifest, Roots, Step, begin, shard, write_shard
from dynatui.lab.selector.labels import LABELLED, TextRoots

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


def collect(engine: Engine, prompts: Sequence[AnyPrompt], plan: CollectionPlan, folder: Path) -> Iterator[Step]:
    """Labels roots, and yields at the beginning and after each part, which is one prompt with one sampling setting."""
    require_plan(plan)
    pair, settings = engine.pair.observed(), plan.settings
    digest = hashlib.sha256("\0".join(map(_identity, prompts)).encode()).hexdigest()
    begin(folder, Manifest(FORMAT, fingerprint(pair), plan, len(prompts), digest))
    shards = [shard(folder, number) for number in range(len(prompts) * len(settings))]
    done, roots, latencies = sum(each.exists() for each in shards), 0, _latencies(engine.pair, plan)

    def step() -> Step:
        return f"{done} of {len(shards)} texts done, {roots} roots labelled in this run", done / len(shards)

    yield step()
    for number, path in enumerate(shards):
        if path.exists():
            continue
        prompt, setting = divmod(number, len(settings))
        seed = plan.seed + number
        (text_ids,) = encode_prompts(
            pair.tokenizer, [prompts[prompt]], plan.new_tokens + LONGEST, pair.context, limit=pair.limit
        )
        text = _sampled(engine, text_ids, plan.new_tokens, settings[setting], seed)
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


def _sampled(engine: Engine, prompt_ids: Sequence[int], count: int, sampling: Sampling, seed: int) -> list[int]:
    session = engine.sampled(seed, Schedule(sampling)).session(prompt_ids, count, None)
    text = list(prompt_ids)
    session.prefill()
    finished = None
    while finished is None:
        outcome = session.step(())
        text += outcome.committed
        finished = outcome.finished
    session.close()
    return text


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
