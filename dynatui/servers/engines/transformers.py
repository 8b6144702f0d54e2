"""Hugging Face transformers: arguments of `generate`, and the GenerationConfig of the assistant. The number of drafted
tokens must be in this GenerationConfig: as an argument of `generate`, it has no effect.
"""

from decoder.models.names import DraftKind, repository, revision
from dynatui.servers.engines.engine import Deployment, Engine, Paste

_ARGUMENTS: dict[DraftKind, str] = {
    "model": "assistant_model=assistant",
    "mtp": "use_mtp=True",
    "lookup": "prompt_lookup_num_tokens={k}, max_matching_ngram_size=16",
}
_NOTES: dict[DraftKind, tuple[str, ...]] = {
    "mtp": ("it drafts as many tokens as there are MTP layers",),
    "lookup": ("its lookup takes the first repetition, ours the longest: acceptance may differ",),
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


def _program(target: str, assistant: str = "", arguments: str = "") -> str:
    loaded = _TARGET.format(target=_quoted(target)) + assistant
    return loaded + _GENERATE.format(arguments=f", {arguments}" if arguments else "")


def _quoted(model: str) -> str:
    version = revision(model)
    return repr(repository(model)) + (f", revision={version!r}" if version else "")


def _speculative(deployment: Deployment) -> Paste:
    kind, k, p_min = deployment.kind, deployment.k, deployment.p_min or 0.0
    assistant = _ASSISTANT.format(draft=_quoted(deployment.draft), k=k, p_min=p_min) if kind == "model" else ""
    notes = ("with scikit-learn installed, it changes the threshold while it runs",) if p_min else ()
    return Paste(_program(deployment.target, assistant, _ARGUMENTS[kind].format(k=k)), _NOTES.get(kind, notes))


TRANSFORMERS = Engine(
    name="transformers",
    title="Hugging Face transformers",
    version="5.24.0",
    kinds=_ARGUMENTS,
    baseline=lambda target, _: _program(target),
    speculative=_speculative,
    synthetic=lambda _: None,
    rules=("probabilistic",),
    stops=frozenset({"model"}),
    batches=False,
)
