"""The engines for which advice is written: how each serves a deployment, and which kinds of drafts each supports."""

import json
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import structs

from decoder.models.names import DraftKind, repository, revision

Rule: TypeAlias = Literal["greedy", "probabilistic"]
"""How drafts are chosen at T > 0: the most probable tokens, or tokens drawn from the draft's distribution."""
WITHIN: tuple[DraftKind, ...] = ("mtp", "lookup")
"""Kinds of drafts without weights of their own."""


class Band(msgspec.Struct, frozen=True):
    first: int
    last: int
    """`first` and `last` are the ends of the band, in running requests; both are included."""
    k: int
    """Drafted tokens per round; 0: no drafts."""


class Tree(msgspec.Struct, frozen=True):
    steps: int
    topk: int
    """Children of a node."""
    tokens: int
    """Number of tokens that the target verifies, including the root's."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    target: str
    draft: str
    kind: DraftKind
    levels_at_once: int = 1
    k: int
    """The largest number of drafted tokens per round; 0: no drafts."""
    bands: tuple[Band, ...] = ()
    """Drafted tokens by load, from 1 running request on; empty if the engine drafts `k` tokens at every load."""
    most: int
    """Largest number of running requests."""
    survival: tuple[float, ...]
    """Survival rates of chains of `k` tokens."""
    length: float
    """Predicted mean tokens per round with chains of `k` tokens."""
    rule: Rule = "greedy"
    p_min: float | None = None
    """Least draft probability with which a token is drafted."""
    tree: Tree | None = None
    synthetic: bool = False
    """Whether tokens are accepted at random with the predicted rates, to measure the speed at this acceptance."""


class Paste(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Engine:
    name: str
    title: str
    version: str
    """Version of the engine whose option names are printed."""
    kinds: Collection[DraftKind]
    serve: Callable[[Deployment], Paste]
    synthetic: bool = False
    """Whether the engine can start a server of a `synthetic` deployment."""
    rules: tuple[Rule, ...] = ("greedy",)
    by_load: Collection[DraftKind] = ()
    """Kinds of drafts whose length may depend on the number of running requests."""
    trees: Collection[DraftKind] = ()
    stops: Collection[DraftKind] = ()
    """Kinds of drafts that the engine can end before an improbable token."""
    batches: bool = True
    """Whether the engine decodes several requests together while drafting."""


class Commands(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    engine: str
    version: str
    baseline: str
    advised: Paste | None = None
    synthetic: str | None = None
    tree: Paste | None = None
    """Options of a tree to try instead; None if no tree may be faster."""
    stopped: Paste | None = None
    """Options of drafts that end before improbable tokens; None if these are not faster."""

    def blocks(self) -> Iterator[tuple[str, str]]:
        """Title and text of each block to paste."""
        named = f"{self.engine} {self.version}"
        drafting = {"": self.advised, ", with p_min instead": self.stopped, ", a tree instead": self.tree}
        for variant, paste in drafting.items():
            if paste:
                yield "; ".join([f"{named}{variant}", *paste.notes]), paste.text
        yield f"{named}, without drafts, to measure against", self.baseline
        if self.synthetic:
            yield f"{named}, to measure the speed at the predicted acceptance, with any prompts", self.synthetic


def commands(engine: Engine, target: str, most: int, **deployments: Deployment) -> Commands:
    """The engine's commands for these deployments, which are named as the fields of `Commands`, and without drafts."""
    plain = Deployment(target=target, draft="", kind="model", k=0, most=most, survival=(), length=1.0)
    pastes = {name: engine.serve(deployment) for name, deployment in deployments.items()}
    synthetic = None
    if engine.synthetic and (advised := deployments.get("advised")):
        synthetic = engine.serve(structs.replace(advised, synthetic=True)).text
    baseline = engine.serve(plain).text
    return Commands(engine=engine.title, version=engine.version, baseline=baseline, synthetic=synthetic, **pastes)


def shell(*lines: Sequence[str]) -> str:
    """One shell command, with one line for each group of words."""
    return " \\\n  ".join(shlex.join(line) for line in lines if line)


def revised(model: str, option: str = "--revision") -> list[str]:
    version = revision(model)
    return [option, version] if version else []


def written(name: str, content: str) -> str:
    return f"cat > {name} <<'END'\n{content}\nEND\n"


def rates(survival: Sequence[float]) -> list[float]:
    return [round(rate, 4) for rate in survival]


_KINDS: tuple[DraftKind, ...] = ("model", "eagle3", "mtp", "dflash", "lookup")


def _named(*names: str) -> dict[DraftKind, str]:
    return dict(zip(_KINDS, names, strict=True))


_VLLM = _named("draft_model", "eagle3", "mtp", "dflash", "ngram")
_SGLANG = _named("STANDALONE", "EAGLE3", "NEXTN", "DFLASH", "NGRAM")
_TENSORRT_LLM = _named("DraftTarget", "Eagle3", "MTP", "DFlash", "NGram")
_LLAMA_CPP = _named("draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "ngram-simple")
_NGRAMS = {"prompt_lookup_min": 2, "prompt_lookup_max": 16}
"""Least and largest length of the text's suffix that is looked up; the longest suffix is tried first."""
_ADAPTIVE = "adaptive.json"
"""Name of the file with the number of steps by batch size."""
_FILE = "speculative.yaml"
_GGUF = ".gguf"


def _vllm(server: Deployment) -> Paste:
    """`--speculative-config`, a JSON object; fields from vllm/config/speculative.py."""
    config = _vllm_config(server) if server.k else {}
    if server.synthetic:
        config |= {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": rates(server.survival)}
    options = ["--speculative-config", json.dumps(config)] if config else []
    return Paste(
        shell(["vllm", "serve", repository(server.target)], revised(server.target), options),
        ("its lookup takes the first match, dynatui's the longest: acceptance may differ",) * (server.kind == "lookup"),
    )


def _vllm_config(server: Deployment) -> dict[str, Any]:
    config: dict[str, Any] = {"method": _VLLM[server.kind]}
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


def _sglang(server: Deployment) -> Paste:
    """`--speculative-*`; options from sglang/srt/arg_groups/fields/spec.py."""
    options, before = _sglang_options(server) if server.k else [], ""
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


def _sglang_options(server: Deployment) -> list[list[str]]:
    kind, tree = server.kind, server.tree or Tree(server.k, 1, server.k + 1)
    options = [["--speculative-algorithm", _SGLANG[kind]]]
    if kind not in WITHIN:
        options.append(["--speculative-draft-model-path", repository(server.draft)])
        options.append(revised(server.draft, "--speculative-draft-model-revision"))
    if kind not in ("dflash", "lookup"):
        options.append(["--speculative-num-steps", str(tree.steps), "--speculative-eagle-topk", str(tree.topk)])
    return [*options, ["--speculative-num-draft-tokens", str(tree.tokens)]]


def _tensorrt_llm(server: Deployment) -> Paste:
    """`speculative_config` in a YAML file; fields from tensorrt_llm/llmapi/llm_args.py."""
    serve = ["trtllm-serve", repository(server.target)]
    if not server.k:
        return Paste(shell(serve))
    fields: dict[str, Any] = {"decoding_type": _TENSORRT_LLM[server.kind], "max_draft_len": server.k}
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


def _llama_cpp(server: Deployment) -> Paste:
    """`--spec-*`; options from common/arg.cpp and docs/speculative.md."""
    options = [["llama-server", "-m", _gguf_file(server.target), "-np", str(server.most), "--metrics"]]
    kind, notes = server.kind, list[str]()
    if server.k and kind not in WITHIN:
        options.append(["--spec-draft-model", _gguf_file(server.draft)])
    if server.k:
        drafted = "--spec-ngram-simple-size-m" if kind == "lookup" else "--spec-draft-n-max"
        options.append(["--spec-type", _LLAMA_CPP[kind], drafted, str(server.k)])
    if server.p_min is not None and kind != "lookup":
        options.append(["--spec-draft-p-min", f"{server.p_min:g}"])
    if server.synthetic:
        options.append(["--spec-synth-rates", ",".join(f"{rate:g}" for rate in rates(server.survival))])
    models = [server.target] if kind in WITHIN else [server.target, server.draft]
    if others := [_name(model) for model in models if not model.endswith(_GGUF)]:
        notes.append(f"it reads GGUF files: convert {' and '.join(others)} first")
    if kind == "lookup":
        notes.append("its lookup needs a repetition of 12 tokens: acceptance may differ")
    return Paste(shell(*options), tuple(notes))


def _gguf_file(model: str) -> str:
    """The GGUF file of a model, or the name under which it would be converted."""
    return model if model.endswith(_GGUF) else f"{_name(repository(model))}{_GGUF}"


def _name(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2]


_ARGUMENTS: dict[DraftKind, str] = {
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
    """Arguments of `generate`. The number of drafted tokens must be in the GenerationConfig of the assistant: as an
    argument of `generate`, it has no effect.
    """
    kind, k, p_min = server.kind, server.k, server.p_min or 0.0
    program, arguments, note = _TARGET.format(target=_quoted(server.target)), "", _NOTES.get(kind, "")
    if k:
        arguments = f", {_ARGUMENTS[kind].format(k=k)}"
    if k and kind == "model":
        program += _ASSISTANT.format(draft=_quoted(server.draft), k=k, p_min=p_min)
    if p_min and not note:
        note = "with scikit-learn installed, it changes the threshold while it runs"
    return Paste(program + _GENERATE.format(arguments=arguments), (note,) if note else ())


def _quoted(model: str) -> str:
    version = revision(model)
    return repr(repository(model)) + (f", revision={version!r}" if version else "")


_ENGINES = (
    Engine("vllm", "vLLM", "0.33.0", _VLLM, _vllm, synthetic=True, rules=("greedy", "probabilistic"), by_load=_VLLM),
    Engine(
        "sglang",
        "SGLang",
        "0.5.23",
        _SGLANG,
        _sglang,
        synthetic=True,
        by_load={"eagle3"},
        trees={"model", "eagle3", "mtp"},
    ),
    Engine(
        "llama.cpp",
        "llama.cpp",
        "0c1e57098 (October 2026)",
        _LLAMA_CPP,
        _llama_cpp,
        synthetic=True,
        stops={"model", "eagle3", "mtp", "dflash"},
    ),
    Engine(
        "tensorrt-llm",
        "TensorRT-LLM",
        "1.4.0rc4",
        _TENSORRT_LLM,
        _tensorrt_llm,
        by_load=_TENSORRT_LLM,
        trees={"eagle3", "mtp"},
    ),
    Engine(
        "transformers",
        "Hugging Face transformers",
        "5.24.0",
        _ARGUMENTS,
        _transformers,
        rules=("probabilistic",),
        stops={"model"},
        batches=False,
    ),
)
ENGINES: dict[str, Engine] = {engine.name: engine for engine in _ENGINES}
