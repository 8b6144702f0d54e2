"""TensorRT-LLM: `speculative_config` in a YAML file; fields from tensorrt_llm/llmapi/llm_args.py."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from decoder.models.names import DraftKind, repository
from dynatui.servers.engines.engine import WITHIN, Band, Deployment, Engine, Paste, shell, written

_NAMES: dict[DraftKind, str] = {
    "model": "DraftTarget",
    "eagle3": "Eagle3",
    "mtp": "MTP",
    "dflash": "DFlash",
    "lookup": "NGram",
}
_FILE = "speculative.yaml"


def _served(server: Deployment) -> Paste:
    serve = ["trtllm-serve", repository(server.target)]
    if not server.k:
        return Paste(shell(serve))
    fields: dict[str, Any] = {"decoding_type": _NAMES[server.kind], "max_draft_len": server.k}
    if server.kind not in WITHIN:
        fields["speculative_model"] = repository(server.draft)
    if server.kind == "lookup":
        fields["max_matching_ngram_size"] = 16
    if tree := server.tree:
        fields |= {"use_dynamic_tree": True, "dynamic_tree_max_topK": tree.topk}
        fields |= {"max_draft_len": tree.steps, "max_total_draft_tokens": tree.tokens - 1}
    elif schedule := _schedule(server.bands):
        fields["draft_len_schedule"] = schedule
    # A dict of numbers is written alike in Python and YAML; other values are written as in JSON.
    values = {name: str(each) if isinstance(each, dict) else json.dumps(each) for name, each in fields.items()}
    content = "\n".join(["speculative_config:", *(f"  {name}: {value}" for name, value in values.items())])
    return Paste(written(_FILE, content) + shell([*serve, "--config", _FILE]))


def _schedule(bands: Sequence[Band]) -> dict[int, int] | None:
    """Largest batch size -> drafted tokens; still larger batches draft none. None for one band, or if `k` increases."""
    if len(bands) < 2 or any(one.k < other.k for one, other in pairwise(bands)):
        return None
    return {band.last: band.k for band in bands if band.k}


TENSORRT_LLM = Engine(
    "tensorrt-llm", "TensorRT-LLM", "1.4.0rc4", _NAMES, _served, by_load=_NAMES, trees={"eagle3", "mtp"}
)
