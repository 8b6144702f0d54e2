"""Tiny random models in the layout of the Hugging Face hub, built in milliseconds, with clearly peaked logits.

A draft is either strange (its own random weights, almost never right) or kin (the target's weights with noise, so that
long paths are accepted). Weights are large so that errors of positions and masks show: a wrong position or a visible
sibling changes logits by whole units.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    T5Config,
    T5ForConditionalGeneration,
    XLNetConfig,
)

VOCABULARY = 288
"""Number of ids that the tiny models score."""
CONTEXT = 192
"""Number of positions of the tiny models."""
WINDOW = 40
"""Attention window of pairs that have one: longer than the deepest tree of a CUDA graph, shorter than texts."""

SENTENCES = (
    "The tree grows where the draft is sure, and the target prunes what it would not have said.",
    "A small model guesses; a large model reads every guess at once and keeps the longest right path.",
    "Nothing is lost: the text is the one that the large model alone would have written.",
)
OTHER_SENTENCES = ("Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.", "0123456789 {}[]()<>;:=+-*/")


SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def _common(shape: dict[str, Any]) -> dict[str, Any]:
    bare = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    lengths = {} if "n_positions" in shape else {"max_position_embeddings": CONTEXT}
    return {"vocab_size": VOCABULARY, "tie_word_embeddings": False} | bare | lengths | shape


def _family(config: Any, **shape: Any) -> Callable[..., Any]:
    return lambda **changes: config(**_common(shape | changes))


FAMILIES: dict[str, Callable[..., Any]] = {
    "neox": _family(GPTNeoXConfig, **SHAPE),
    "llama": _family(LlamaConfig, **SHAPE, num_key_value_heads=2),
    "qwen3": _family(Qwen3Config, **SHAPE, num_key_value_heads=2, head_dim=16),
    "gpt2": _family(GPT2Config, n_embd=32, n_layer=2, n_head=4, n_positions=CONTEXT),
}
"""Functions that make the configuration of a tiny target, by family."""

_SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
_SMALLER = {
    "neox": _SMALL,
    "llama": _SMALL | {"num_key_value_heads": 1},
    "qwen3": _SMALL | {"num_key_value_heads": 1},
    "gpt2": {"n_embd": 16, "n_layer": 1, "n_head": 2},
}


@dataclass(frozen=True)
class TinyPair:
    target: Path
    draft: Path

    def with_generation(self, home: Path, **settings: Any) -> "TinyPair":
        """A copy whose target has these settings in its generation_config.json."""
        target = home / "target"
        shutil.copytree(self.target, target, dirs_exist_ok=True)
        (target / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
        return TinyPair(target, self.draft)


def train_tokenizer(sentences: Sequence[str] = SENTENCES, *, begin: bool = False) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of 270 ids; with `begin`, every prompt starts with a special token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=270, special_tokens=["<|begin|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(sentences, trainer)
    if begin:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|begin|>" if begin else None)


def build(config: Any, seed: int, *, spread: float = 0.35, heat: float = 1.0) -> Any:
    """A model with normally distributed weights: standard deviation `heat` in the output matrix, `spread` elsewhere."""
    model = _from_config(config)
    _fill(model, seed, spread)
    head = model.get_output_embeddings()
    with torch.no_grad():
        head.weight.mul_(heat / spread)
    return model.eval()


def kin(model: Any, seed: int, *, noise: float = 0.04) -> Any:
    """A copy of `model` with noise on each matrix: `noise` times the matrix's standard deviation."""
    generator = torch.Generator().manual_seed(seed)
    copy = _from_config(model.config)
    copy.load_state_dict(model.state_dict())
    with torch.no_grad():
        for weight in copy.parameters():
            if weight.dim() > 1:
                weight.add_(torch.randn(weight.shape, generator=generator), alpha=noise * float(weight.std()))
    return copy.eval()


def save_pair(home: Path, target: Any, draft: Any, *, begin: bool = False) -> TinyPair:
    pair = TinyPair(home / "target", home / "draft")
    for model, path in ((target, pair.target), (draft, pair.draft)):
        save(path, model, train_tokenizer(begin=begin))
    return pair


def save(path: Path, model: Any, tokenizer: PreTrainedTokenizerFast) -> Path:
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def kindred_pair(family: str, home: Path, *, begin: bool = False, noise: float = 0.04) -> TinyPair:
    """A target and a draft that often agree."""
    target = build(FAMILIES[family](), seed=1)
    return save_pair(home, target, kin(target, seed=2, noise=noise), begin=begin)


def strange_pair(family: str, home: Path) -> TinyPair:
    """A target and a smaller draft that almost never agree."""
    target = build(FAMILIES[family](), seed=1)
    return save_pair(home, target, build(FAMILIES[family](**_SMALLER[family]), seed=3))


def twin_pair(home: Path) -> TinyPair:
    """A pair for which every odd id scores exactly as the even id below it."""
    target = build(FAMILIES["neox"](), seed=1)
    draft = kin(target, seed=2)
    with torch.no_grad():
        for model in (target, draft):
            head = model.get_output_embeddings().weight
            head[1::2] = head[::2]
    return save_pair(home, target, draft)


def long_pair(home: Path) -> TinyPair:
    """A pair with room for a prompt that is read in several parts."""
    target = build(FAMILIES["neox"](max_position_embeddings=1200), seed=1)
    return save_pair(home, target, kin(target, seed=2))


def windowed_pair(family: Any, home: Path, **windows: Any) -> TinyPair:
    """A kindred pair with attention windows in all or some of its layers."""
    shape = SHAPE | {"num_key_value_heads": 2, "sliding_window": WINDOW}
    target = build(family(**_common(shape | windows)), seed=1)
    return save_pair(home, target, kin(target, seed=2))


WINDOWED: dict[str, Callable[[Path], TinyPair]] = {
    "windows": lambda home: windowed_pair(MistralConfig, home),
    "half-windows": lambda home: windowed_pair(Qwen2Config, home, use_sliding_window=True, max_window_layers=1),
}
"""Pairs with attention windows: in all layers, and in the second of two."""

SPREAD_SHAPE = {"hidden_size": 48, "num_attention_heads": 6, "max_position_embeddings": 512}
"""Shape of models that two or three processes can share, with room for hundreds of tokens."""


def spread_pair(family: str, home: Path) -> TinyPair:
    """A kindred pair whose attention heads two or three processes can share; the MLP's width divides only by two."""
    groups = {} if family == "neox" else {"num_key_value_heads": 6}
    target = build(FAMILIES[family](**SPREAD_SHAPE, **groups), seed=1)
    return save_pair(home, target, kin(target, seed=2))


def padded_pair(home: Path, *, target_width: int, draft_width: int) -> TinyPair:
    """A pair whose logits differ in width; the ids above the common ones are the target's and draft's favourites."""
    narrow = min(target_width, draft_width)
    target = build(FAMILIES["neox"](vocab_size=target_width), seed=1)
    draft = build(FAMILIES["neox"](vocab_size=draft_width), seed=1)
    with torch.no_grad():
        for mine, theirs in zip(draft.parameters(), target.parameters(), strict=True):
            mine[:narrow].copy_(theirs[:narrow]) if mine.shape != theirs.shape else mine.copy_(theirs)
        for model in (target, draft):
            model.get_output_embeddings().weight[narrow:].mul_(3.0)
    return save_pair(home, target, kin(draft, seed=2))


TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
"""A chat template like those on the hub: the template itself writes the special token that begins a text."""


def chat_pair(home: Path, template: Any = TEMPLATE) -> TinyPair:
    """A pair with a chat template, whose tokenizer begins every plain text with a special token."""
    pair = kindred_pair("llama", home, begin=True)
    for path in (pair.target, pair.draft):
        tokenizer = train_tokenizer(begin=True)
        tokenizer.chat_template = template
        tokenizer.save_pretrained(path)
    return pair


SPECIAL: dict[str, Callable[[Path], TinyPair]] = {
    "chat": chat_pair,
    "begin": lambda home: kindred_pair("llama", home, begin=True),
    "long": long_pair,
    "twins": twin_pair,
    "wide-draft": lambda home: padded_pair(home, target_width=288, draft_width=304),
    "wide-target": lambda home: padded_pair(home, target_width=304, draft_width=288),
    **WINDOWED,
}
"""Pairs with one special property each, by the property."""


def strangers_tongue(home: Path) -> TinyPair:
    target = build(FAMILIES["neox"](), seed=1)
    pair = save_pair(home, target, kin(target, seed=2))
    shutil.rmtree(pair.draft)
    save(pair.draft, target, train_tokenizer(OTHER_SENTENCES))
    return pair


UNFIT: dict[str, Callable[[], Any]] = {
    "xlnet": lambda: _from_config(XLNetConfig(vocab_size=VOCABULARY, d_model=16, n_layer=1, n_head=2, d_inner=32)),
    "t5": lambda: T5ForConditionalGeneration(
        T5Config(vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    ),
}
"""Models that the engine must refuse, by architecture."""


def unfit_pair(kind: str, home: Path) -> TinyPair:
    """A usable draft with a target that the engine cannot decode."""
    pair = TinyPair(home / "target", home / "draft")
    save(pair.target, UNFIT[kind](), train_tokenizer())
    save(pair.draft, build(FAMILIES["neox"](), seed=1), train_tokenizer())
    return pair


def _from_config(config: Any) -> Any:
    """A module as transformers makes it, with a fixed seed, because some families draw weights in their constructor."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config)


def _fill(model: Any, seed: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.copy_(torch.randn(weight.shape, generator=generator) * spread)
