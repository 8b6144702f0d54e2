"""SGLang: `--speculative-*`; options from sglang/srt/arg_groups/fields/spec.py."""

import json

from decoder.models.names import DraftKind, repository
from dynatui.servers.engines.engine import WITHIN, Deployment, Engine, Paste, Tree, revised, shell, written

_NAMES: dict[DraftKind, str] = {
    "model": "STANDALONE",
    "eagle3": "EAGLE3",
    "mtp": "NEXTN",
    "dflash": "DFLASH",
    "lookup": "NGRAM",
}
_ADAPTIVE = "adaptive.json"
"""Name of the file with the number of steps by batch size."""


def _served(server: Deployment) -> Paste:
    options, before = _options(server) if server.k else [], ""
    if server.synthetic:
        before = f"SGLANG_SIMULATE_ACC_LEN={server.length:.3f} "
    elif len(server.bands) > 1 and not server.tree:
        steps = {str(each.first): {"candidate_steps": [each.k]} for each in server.bands}
        options.append(["--speculative-adaptive", "--speculative-adaptive-config", _ADAPTIVE])
        before = written(_ADAPTIVE, json.dumps(steps))
    launch = ["python", "-m", "sglang.launch_server", "--model-path", repository(server.target)]
    return Paste(
        before + shell(launch, revised(server.target), *options),
        ("its lookup drafts a tree: acceptance may differ",) * (server.kind == "lookup"),
    )


def _options(server: Deployment) -> list[list[str]]:
    kind, tree = server.kind, server.tree or Tree(server.k, 1, server.k + 1)
    options = [["--speculative-algorithm", _NAMES[kind]]]
    if kind not in WITHIN:
        options.append(["--speculative-draft-model-path", repository(server.draft)])
        options.append(revised(server.draft, "--speculative-draft-model-revision"))
    if kind not in ("dflash", "lookup"):
        options.append(["--speculative-num-steps", str(tree.steps), "--speculative-eagle-topk", str(tree.topk)])
    return [*options, ["--speculative-num-draft-tokens", str(tree.tokens)]]


SGLANG = Engine(
    "sglang", "SGLang", "0.5.23", _NAMES, _served, synthetic=True, by_load={"eagle3"}, trees={"model", "eagle3", "mtp"}
)
