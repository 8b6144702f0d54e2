"""The engines for which advice is written: how each starts a server with a deployment's drafts.

Options and fields: vLLM's vllm/config/speculative.py (`--speculative-config`), SGLang's
sglang/srt/arg_groups/fields/spec.py, llama.cpp's common/arg.cpp and docs/speculative.md, TensorRT-LLM's
tensorrt_llm/llmapi/llm_args.py (`speculative_config` in a YAML file). In transformers, the number of drafted tokens
must be in the GenerationConfig of the assistant: as an argument of `generate`, it has no effect.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from decoder.models.names import DraftKind, repository, revision
from dynatui.servers.engines.engine import Band, Deployment, Engine, Paste, Tree, shell


class _Names(NamedTuple):
    vllm: str
    sglang: str
    llama_cpp: str
    tensorrt_llm: str


_NAMES: Mapping[DraftKind, _Names] = {
    "model": _Names("draft_model", "STANDALONE", "draft-simple", "DraftTarget"),
    "eagle3": _Names("eagle3", "EAGLE3", "draft-eagle3", "Eagle3"),
    "mtp": _Names("mtp", "NEXTN", "draft-mtp", "MTP"),
    "dflash": _Names("dflash", "DFLASH", "draft-dflash", "DFlash"),
    "lookup": _Names("ngram", "NGRAM", "ngram-simple", "NGram"),
}
_WITHIN = ("mtp", "lookup")
"""Kinds of drafts without weights of their own."""
_NGRAMS = {"prompt_lookup_min": 2, "prompt_lookup_max": 16}
"""Least and largest length of the text's suffix that is looked up; the longest suffix is tried first."""


def _vllm(server: Deployment) -> Paste:
    config = _vllm_config(server) if server.k else {}
    if server.synthetic:
        config |= {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": _rates(server.survival)}
    options = ["--speculative-config", json.dumps(config)] if config else []
    return Paste(
        shell(["vllm", "serve", repository(server.target)], _revised(server.target), options),
        ("its lookup takes the first match, dynatui's the longest: acceptance may differ",) * (server.kind == "lookup"),
    )


def _vllm_config(server: Deployment) -> dict[str, Any]:
    config: dict[str, Any] = {"method": _NAMES[server.kind].vllm}
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


_ADAPTIVE = "adaptive.json"
"""Name of the file with the number of steps by batch size."""


def _sglang(server: Deployment) -> Paste:
    options, before = _sglang_options(server) if server.k else [], ""
    if server.synthetic:
        before = f"SGLANG_SIMULATE_ACC_LEN={server.length:.3f} "
    elif len(server.bands) > 1 and not server.tree:
        steps = {str(each.first): {"candidate_steps": [each.k]} for each in server.bands}
        options.append(["--speculative-adaptive", "--speculative-adaptive-config", _ADAPTIVE])
        before = _written(_ADAPTIVE, json.dumps(steps))
    launch = ["python", "-m", "sglang.launch_server", "--model-path", repository(server.target)]
    return Paste(
        before + shell(launch, _revised(server.target), *options),
        ("its lookup drafts a tree: acceptance may differ",) * (server.kind == "lookup"),
    )


def _sglang_options(server: Deployment) -> list[list[str]]:
    kind, tree = server.kind, server.tree or Tree(server.k, 1, server.k + 1)
    options = [["--speculative-algorithm", _NAMES[kind].sglang]]
    if kind not in _WITHIN:
        options.append(["--speculative-draft-model-path", repository(server.draft)])
        options.append(_revised(server.draft, "--speculative-draft-model-revision"))
    if kind not in ("dflash", "lookup"):
        options.append(["--speculative-num-steps", str(tree.steps), "--speculative-eagle-topk", str(tree.topk)])
    return [*options, ["--speculative-num-draft-tokens", str(tree.tokens)]]


_GGUF = ".gguf"


def _llama_cpp(server: Deployment) -> Paste:
    options = [["llama-server", "-m", _file(server.target), "-np", str(server.most), "--metrics"]]
    kind, notes = server.kind, list[str]()
    if server.k and kind not in _WITHIN:
        options.append(["--spec-draft-model", _file(server.draft)])
    if server.k:
        drafted = "--spec-ngram-simple-size-m" if kind == "lookup" else "--spec-draft-n-max"
        options.append(["--spec-type", _NAMES[kind].llama_cpp, drafted, str(server.k)])
    if server.p_min is not None and kind != "lookup":
        options.append(["--spec-draft-p-min", f"{server.p_min:g}"])
    if server.synthetic:
        options.append(["--spec-synth-rates", ",".join(f"{rate:g}" for rate in _rates(server.survival))])
    models = [server.target] if kind in _WITHIN else [server.target, server.draft]
    if others := [_name(model) for model in models if not model.endswith(_GGUF)]:
        notes.append(f"it reads GGUF files: convert {' and '.join(others)} first")
    if kind == "lookup":
        notes.append("its lookup needs a repetition of 12 tokens: acceptance may differ")
    return Paste(shell(*options), tuple(notes))


def _file(model: str) -> str:
    """The GGUF file of a model, or the name under which it would be converted."""
    return model if model.endswith(_GGUF) else f"{_name(repository(model))}{_GGUF}"


def _name(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2]


_FILE = "speculative.yaml"


def _tensorrt_llm(server: Deployment) -> Paste:
    serve = ["trtllm-serve", repository(server.target)]
    if not server.k:
        return Paste(shell(serve))
    fields: dict[str, Any] = {"decoding_type": _NAMES[server.kind].tensorrt_llm, "max_draft_len": server.k}
    if server.kind not in _WITHIN:
        fields["speculative_model"] = repository(server.draft)
    if server.kind == "lookup":
        fields["max_matching_ngram_size"] = 16
    if tree := server.tree:
        fields |= {"use_dynamic_tree": True, "dynamic_tree_max_topK": tree.topk}
        fields |= {"max_draft_len": tree.steps, "max_total_draft_tokens": tree.tokens - 1}
    elif schedule := _schedule(server.bands):
        fields["draft_len_schedule"] = schedule
    content = "\n".join(["speculative_config:", *(f"  {name}: {_yaml(value)}" for name, value in fields.items())])
    return Paste(_written(_FILE, content) + shell([*serve, "--config", _FILE]))


def _schedule(bands: Sequence[Band]) -> dict[int, int] | None:
    """Largest batch size -> drafted tokens; still larger batches draft none. None for one band, or if `k` increases."""
    if len(bands) < 2 or any(one.k < other.k for one, other in pairwise(bands)):
        return None
    return {band.last: band.k for band in bands if band.k}


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {each}' for key, each in value.items())}}}"
    return json.dumps(value)


_TRANSFORMERS: dict[DraftKind, str] = {
    "model": "assistant_model=assistant",
    "mtp": "use_mtp=True",
    "lookup": "prompt_lookup_num_tokens={k}, max_matching_ngram_size=16",
}
_NOTES: dict[DraftKind, str] = {
    "mtp": "it drafts as many tokens as there are MTP layers",
    "lookup": "its lookup takes the first repetition, ours the longest: acceptance may differ",
}
_TARGET = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({target})
model = AutoModelForCausalLM.from_pretrained({target}, device_map="auto")
"""
_ASSISTANT = """\
assistant = AutoModelForCausalLM.from_pretrained({draft}, device_map="auto")
assistant.generation_config.update(
    num_assistant_tokens={k}, num_assistant_tokens_schedule="constant", assistant_confidence_threshold={p_min}
)
"""
_GENERATE = """\
inputs = tokenizer("...", return_tensors="pt").to(model.device)
output = model.generate(**inputs, max_new_tokens=256{arguments})"""


def _transformers(server: Deployment) -> Paste:
    kind, k, p_min = server.kind, server.k, server.p_min or 0.0
    program, arguments, note = _TARGET.format(target=_quoted(server.target)), "", _NOTES.get(kind, "")
    if k:
        arguments = f", {_TRANSFORMERS[kind].format(k=k)}"
    if k and kind == "model":
        program += _ASSISTANT.format(draft=_quoted(server.draft), k=k, p_min=p_min)
    if p_min and not note:
        note = "with scikit-learn installed, it changes the threshold while it runs"
    return Paste(program + _GENERATE.format(arguments=arguments), (note,) if note else ())


def _quoted(model: str) -> str:
    version = revision(model)
    return repr(repository(model)) + (f", revision={version!r}" if version else "")


def _revised(model: str, option: str = "--revision") -> list[str]:
    version = revision(model)
    return [option, version] if version else []


def _written(name: str, content: str) -> str:
    return f"cat > {name} <<'END'\n{content}\nEND\n"


def _rates(survival: Sequence[float]) -> list[float]:
    return [round(rate, 4) for rate in survival]


_ENGINES = (
    Engine(
        "vllm",
        "vLLM",
        "0.33.0",
        kinds=frozenset(_NAMES),
        serve=_vllm,
        synthetic=True,
        rules=("greedy", "probabilistic"),
        by_load=frozenset(_NAMES),
    ),
    Engine(
        "sglang",
        "SGLang",
        "0.5.23",
        kinds=frozenset(_NAMES),
        serve=_sglang,
        synthetic=True,
        by_load=frozenset({"eagle3"}),
        trees=frozenset({"model", "eagle3", "mtp"}),
    ),
    Engine(
        "llama.cpp",
        "llama.cpp",
        "0c1e57098 (October 2026)",
        kinds=frozenset(_NAMES),
        serve=_llama_cpp,
        synthetic=True,
        stops=frozenset({"model", "eagle3", "mtp", "dflash"}),
    ),
    Engine(
        "tensorrt-llm",
        "TensorRT-LLM",
        "1.4.0rc4",
        kinds=frozenset(_NAMES),
        serve=_tensorrt_llm,
        by_load=frozenset(_NAMES),
        trees=frozenset({"eagle3", "mtp"}),
    ),
    Engine(
        "transformers",
        "Hugging Face transformers",
        "5.24.0",
        kinds=frozenset(_TRANSFORMERS),
        serve=_transformers,
        rules=("probabilistic",),
        stops=frozenset({"model"}),
        batches=False,
    ),
)
ENGINES: dict[str, Engine] = {engine.name: engine for engine in _ENGINES}
