"""vLLM: `--speculative-config`, a JSON object; fields from vllm/config/speculative.py."""

import json
from typing import Any

from decoder.models.names import DraftKind, repository, revision
from dynatui.servers.engines.engine import Deployment, Engine, Paste, rates, revised, shell

_NAMES: dict[DraftKind, str] = {
    "model": "draft_model",
    "eagle3": "eagle3",
    "mtp": "mtp",
    "dflash": "dflash",
    "lookup": "ngram",
}
_NGRAMS = {"prompt_lookup_min": 2, "prompt_lookup_max": 16}
"""Least and largest length of the text's suffix that is looked up; the longest suffix is tried first."""


def _served(server: Deployment) -> Paste:
    config = _config(server) if server.k else {}
    if server.synthetic:
        config |= {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": rates(server.survival)}
    options = ["--speculative-config", json.dumps(config)] if config else []
    return Paste(
        shell(["vllm", "serve", repository(server.target)], revised(server.target), options),
        ("its lookup takes the first match, dynatui's the longest: acceptance may differ",) * (server.kind == "lookup"),
    )


def _config(server: Deployment) -> dict[str, Any]:
    config: dict[str, Any] = {"method": _NAMES[server.kind]}
    if server.kind == "lookup":
        config |= _NGRAMS
    elif server.kind != "mtp":
        config["model"] = repository(server.draft)
        if version := revision(server.draft):
            config["revision"] = version
    config["num_speculative_tokens"] = server.k
    if len(server.bands) > 1:
        config["num_speculative_tokens_per_batch_size"] = [[each.first, each.last, each.k] for each in server.bands]
    if server.kind == "eagle3" and server.levels_at_once > 1:
        config["parallel_drafting"] = True
    if server.rule == "probabilistic":
        config["draft_sample_method"] = "probabilistic"
    return config


VLLM = Engine(
    "vllm", "vLLM", "0.33.0", _NAMES, _served, synthetic=True, rules=("greedy", "probabilistic"), by_load=_NAMES
)
