"""Hugging Face transformers: arguments of `generate`. The number of drafted tokens must be in the GenerationConfig of
the assistant: as an argument of `generate`, it has no effect.
"""

from decoder.models.names import DraftKind, repository, revision
from dynatui.servers.engines.engine import Deployment, Engine, Paste

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


def _served(server: Deployment) -> Paste:
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


TRANSFORMERS = Engine(
    "transformers",
    "Hugging Face transformers",
    "5.24.0",
    _ARGUMENTS,
    _served,
    rules=("probabilistic",),
    stops={"model"},
    batches=False,
)
