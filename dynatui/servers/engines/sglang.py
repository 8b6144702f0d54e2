"""SGLang: `--speculative-*`; fields from sglang/srt/arg_groups/fields/spec.py."""

import json

from decoder.models.names import DraftKind, repository, revision
from dynatui.servers.engines.engine import Deployment, Engine, Paste, Tree, shell, written

_ALGORITHMS: dict[DraftKind, str] = {
    "model": "STANDALONE",
    "eagle3": "EAGLE3",
    "mtp": "NEXTN",
    "dflash": "DFLASH",
    "lookup": "NGRAM",
}
_ADAPTIVE = "adaptive.json"
"""Name of the file with the number of steps by batch size."""


def _launch(target: str, *options: list[str]) -> str:
    version = revision(target)
    launch = ["python", "-m", "sglang.launch_server", "--model-path", repository(target)]
    return shell(launch, ["--revision", version] if version else [], *options)


def _options(deployment: Deployment) -> list[list[str]]:
    kind, tree = deployment.kind, deployment.tree or Tree(deployment.k, 1, deployment.k + 1)
    options = [["--speculative-algorithm", _ALGORITHMS[kind]]]
    if kind not in ("mtp", "lookup"):
        options.append(["--speculative-draft-model-path", repository(deployment.draft)])
        if version := revision(deployment.draft):
            options.append(["--speculative-draft-model-revision", version])
    if kind not in ("dflash", "lookup"):
        options.append(["--speculative-num-steps", str(tree.steps), "--speculative-eagle-topk", str(tree.topk)])
    return [*options, ["--speculative-num-draft-tokens", str(tree.tokens)]]


def _speculative(deployment: Deployment) -> Paste:
    options = _options(deployment)
    notes = ("its lookup drafts a tree: acceptance may differ",) if deployment.kind == "lookup" else ()
    if len(deployment.bands) < 2 or deployment.tree:
        return Paste(_launch(deployment.target, *options), notes)
    steps = {str(each.first): {"candidate_steps": [each.k]} for each in deployment.bands}
    adaptive = ["--speculative-adaptive", "--speculative-adaptive-config", _ADAPTIVE]
    return Paste(written(_ADAPTIVE, json.dumps(steps)) + _launch(deployment.target, *options, adaptive), notes)


def _synthetic(deployment: Deployment) -> str:
    return f"SGLANG_SIMULATE_ACC_LEN={deployment.length:.3f} {_launch(deployment.target, *_options(deployment))}"


SGLANG = Engine(
    name="sglang",
    title="SGLang",
    version="0.5.23",
    kinds=_ALGORITHMS,
    baseline=lambda target, _: _launch(target),
    speculative=_speculative,
    synthetic=_synthetic,
    by_load=frozenset({"eagle3"}),
    trees=frozenset({"model", "eagle3", "mtp"}),
)
