"""TensorRT-LLM: `speculative_config` in a YAML file; fields from tensorrt_llm/llmapi/llm_args.py."""

import json
from itertools import pairwise
from typing import Any

from decoder.models.names import DraftKind, repository
from dynatui.servers.engines.engine import Band, Deployment, Engine, Paste, shell, written

_TYPES: dict[DraftKind, str] = {
    "model": "DraftTarget",
    "eagle3": "Eagle3",
    "mtp": "MTP",
    "dflash": "DFlash",
    "lookup": "NGram",
}
_FILE = "speculative.yaml"


def _serve(target: str, *options: str) -> str:
    return shell(["trtllm-serve", repository(target), *options])


def _schedule(bands: tuple[Band, ...]) -> dict[int, int] | None:
    """Largest batch size -> drafted tokens; still larger batches draft none. None for one band, or if `k` increases."""
    drafting = [band for band in bands if band.k]
    if len(bands) < 2 or any(one.k < other.k for one, other in pairwise(bands)):
        return None
    return {band.last: band.k for band in drafting}


def _fields(deployment: Deployment) -> dict[str, Any]:
    fields: dict[str, Any] = {"decoding_type": _TYPES[deployment.kind], "max_draft_len": deployment.k}
    if deployment.kind not in ("mtp", "lookup"):
        fields["speculative_model"] = repository(deployment.draft)
    if deployment.kind == "lookup":
        fields["max_matching_ngram_size"] = 16
    if tree := deployment.tree:
        fields |= {"use_dynamic_tree": True, "dynamic_tree_max_topK": tree.topk}
        fields |= {"max_draft_len": tree.steps, "max_total_draft_tokens": tree.tokens - 1}
    elif schedule := _schedule(deployment.bands):
        fields["draft_len_schedule"] = schedule
    return fields


def _speculative(deployment: Deployment) -> Paste:
    values = {name: _yaml(value) for name, value in _fields(deployment).items()}
    content = "\n".join(["speculative_config:", *(f"  {name}: {value}" for name, value in values.items())])
    return Paste(written(_FILE, content) + _serve(deployment.target, "--config", _FILE))


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {each}' for key, each in value.items())}}}"
    return json.dumps(value)


TENSORRT_LLM = Engine(
    name="tensorrt-llm",
    title="TensorRT-LLM",
    version="1.4.0rc4",
    kinds=_TYPES,
    baseline=lambda target, _: _serve(target),
    speculative=_speculative,
    synthetic=lambda _: None,
    by_load=frozenset(_TYPES),
    trees=frozenset({"eagle3", "mtp"}),
)
