"""vLLM: `--speculative-config`, a JSON object; fields from vllm/config/speculative.py."""

import json
from typing import Any

from decoder.models.names import DraftKind, repository, revision
from dynatui.servers.engines.engine import Deployment, Engine, Paste, rates, shell

_METHODS: dict[DraftKind, str] = {
    "model": "draft_model",
    "eagle3": "eagle3",
    "mtp": "mtp",
    "dflash": "dflash",
    "lookup": "ngram",
}
_NGRAMS = {"prompt_lookup_min": 2, "prompt_lookup_max": 16}
"""Least and largest length of the text's suffix that is looked up; the longest suffix is tried first."""
_OTHER_LOOKUP = "its lookup takes the first match, dynatui's the longest: acceptance may differ"


def _serve(target: str, config: dict[str, Any] | None) -> str:
    version = revision(target)
    options = ["--speculative-config", json.dumps(config)] if config else []
    revised = ["--revision", version] if version else []
    return shell(["vllm", "serve", repository(target)], revised, options)


def _config(deployment: Deployment) -> dict[str, Any]:
    config: dict[str, Any] = {"method": _METHODS[deployment.kind]}
    if deployment.kind == "lookup":
        config |= _NGRAMS
    elif deployment.kind != "mtp":
        config["model"] = repository(deployment.draft)
        if version := revision(deployment.draft):
            config["revision"] = version
    config["num_speculative_tokens"] = deployment.k
    if len(deployment.bands) > 1:
        config["num_speculative_tokens_per_batch_size"] = [[each.first, each.last, each.k] for each in deployment.bands]
    if deployment.kind == "eagle3" and deployment.levels_at_once > 1:
        config["parallel_drafting"] = True
    if deployment.rule == "probabilistic":
        config["draft_sample_method"] = "probabilistic"
    return config


def _speculative(deployment: Deployment) -> Paste:
    notes = (_OTHER_LOOKUP,) if deployment.kind == "lookup" else ()
    return Paste(_serve(deployment.target, _config(deployment)), notes)


def _synthetic(deployment: Deployment) -> str:
    accepted = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": rates(deployment.survival)}
    return _serve(deployment.target, _config(deployment) | accepted)


VLLM = Engine(
    name="vllm",
    title="vLLM",
    version="0.33.0",
    kinds=_METHODS,
    baseline=lambda target, _: _serve(target, None),
    speculative=_speculative,
    synthetic=_synthetic,
    rules=("greedy", "probabilistic"),
    by_load=frozenset(_METHODS),
)
