"""Losses, and a training loop for one model and one loss, with a time budget and a checkpoint from which it resumes.
The checkpoint is the only file that this module reads or writes.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from decoder.system.device import cpu_computes_bf16
from dynatui.lab.training import CONTEXT, Shape, Stage, corpus

CHECKPOINT_S = 240.0
LOG_STEPS = 20
DIVERGENCE_DECAY = 3.0
"""In the overlap loss, the weight of the KL divergence is exp(-DIVERGENCE_DECAY * mean overlap)."""
Loss: TypeAlias = Callable[[Any, Tensor], Tensor]
"""(model, token ids of shape (rows, window + 1)) -> loss."""


def new_model(shape: Shape, vocabulary: int, seed: int) -> Any:
    """A GPT-NeoX model of this shape, whose projections into the residual stream are initialised to 0."""
    torch.manual_seed(seed)
    config = GPTNeoXConfig(
        vocab_size=vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.hidden,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=shape.tied,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    # Eager attention computes the score matrix by bf16 matrix products, which is faster on a CPU for short windows.
    config._attn_implementation = "eager"  # noqa: SLF001 - cannot be set when a configuration is made
    model: Any = GPTNeoXForCausalLM(config)
    for layer in model.gpt_neox.layers:
        nn.init.zeros_(layer.attention.dense.weight)
        nn.init.zeros_(layer.mlp.dense_4h_to_h.weight)
    return model


def text_loss(model: Any, ids: Tensor) -> Tensor:
    """Mean cross-entropy of the next token, in nats per token."""
    logits = model(ids[:, :-1]).logits.float()
    return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def distillation_loss(target: Any) -> Loss:
    """Mean KL divergence of the draft's next-token distribution from the target's, in nats per token."""

    def loss(draft: Any, ids: Tensor) -> Tensor:
        with torch.no_grad():
            target_logprobs = target(ids[:, :-1]).logits.float().log_softmax(-1).flatten(0, 1)
        draft_logprobs = draft(ids[:, :-1]).logits.float().log_softmax(-1).flatten(0, 1)
        return functional.kl_div(draft_logprobs, target_logprobs, reduction="batchmean", log_target=True)

    return loss


def overlap_loss(
    draft_logits: Float[Tensor, "*N V"], target_logits: Float[Tensor, "*N V"], temperature: float
) -> Float[Tensor, ""]:
    """1 - mean overlap + weighted mean KL divergence in nats, of distributions at `temperature`. The overlap is the
    probability that a sampled draft token is accepted. The overlap's gradient vanishes where the distributions hardly
    overlap, so the divergence is added with a weight that falls as the overlap rises.
    """
    target_logprobs = (target_logits.float() / temperature).log_softmax(-1)
    draft_logprobs = (draft_logits.float() / temperature).log_softmax(-1)
    overlap = torch.minimum(target_logprobs, draft_logprobs).exp().sum(-1).mean()
    divergence = functional.kl_div(
        draft_logprobs.flatten(0, -2), target_logprobs.flatten(0, -2), reduction="batchmean", log_target=True
    )
    return 1 - overlap + torch.exp(-DIVERGENCE_DECAY * overlap.detach()) * divergence


def draft_overlap_loss(target: Any, temperature: float) -> Loss:
    def loss(draft: Any, ids: Tensor) -> Tensor:
        with torch.no_grad():
            target_logits = target(ids[:, :-1]).logits
        return overlap_loss(draft(ids[:, :-1]).logits, target_logits, temperature)

    return loss


def optimizers(model: nn.Module, stage: Stage) -> list[torch.optim.Optimizer]:
    hidden = [p for name, p in model.named_parameters() if p.ndim == 2 and not re.search("embed|lm_head", name)]
    chosen = {id(p) for p in hidden}
    other_parameters = [p for p in model.parameters() if id(p) not in chosen]
    muon = torch.optim.Muon(
        [{"params": hidden, "peak": stage.muon_lr}],
        lr=stage.muon_lr,
        weight_decay=stage.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    adam = torch.optim.AdamW(
        [{"params": other_parameters, "peak": stage.adam_lr}], lr=stage.adam_lr, betas=(0.9, 0.95), weight_decay=0.0
    )
    return [muon, adam]


@dataclass
class Progress:
    steps: int = 0
    rows: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def share(self, stage: Stage) -> float:
        return self.seconds / (60 * stage.minutes)


class Trainer:
    def __init__(self, model: Any, loss: Loss, stage: Stage, device: torch.device, checkpoint: Path) -> None:
        self.progress = Progress()
        self._model = model
        self._loss = loss
        self._stage = stage
        self._device = device
        self._checkpoint = checkpoint
        self._steppers = optimizers(model, stage)
        if checkpoint.exists():
            self._resume()

    def run(self, texts: Sequence[NDArray[np.uint16]], log: Callable[[str], None]) -> Progress:
        saved_at, window, smooth = self.progress.seconds, 0, None
        while (share := self.progress.share(self._stage)) < 1.0:
            started = time.perf_counter()
            fresh = window != (window := self._stage.window(share))
            rows = max(1, self._stage.batch_tokens // window)
            value = self._step(corpus.batch(texts, self.progress.rows, rows, window), self._stage.rate(share))
            smooth = value if smooth is None else 0.95 * smooth + 0.05 * value
            # The first step with a new window size includes compilation, so the time of this step is not counted.
            self.progress.seconds += 0.0 if fresh else time.perf_counter() - started
            self.progress.steps += 1
            self.progress.rows += rows
            self.progress.tokens += rows * window
            if self.progress.steps % LOG_STEPS == 0:
                log(f"{share:6.1%} step {self.progress.steps} window {window} loss {smooth:.4f}")
            if self.progress.seconds - saved_at > CHECKPOINT_S:
                saved_at = self.progress.seconds
                self._save()
        self._save()
        return self.progress

    def _step(self, batch: NDArray[np.int64], rate: float) -> float:
        fast = self._device.type != "cpu" or cpu_computes_bf16()
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=fast):
            loss = self._loss(self._model, torch.from_numpy(batch).to(self._device))
        loss.backward()
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        for stepper in self._steppers:
            for group in stepper.param_groups:
                group["lr"] = group["peak"] * rate
            stepper.step()
            stepper.zero_grad(set_to_none=True)
        return loss.item()

    def _save(self) -> None:
        partial = self._checkpoint.with_suffix(".partial")
        state = {
            "model": self._model.state_dict(),
            "optimizers": [stepper.state_dict() for stepper in self._steppers],
            "done": asdict(self.progress),
        }
        torch.save(state, partial)
        partial.replace(self._checkpoint)

    def _resume(self) -> None:
        saved = torch.load(self._checkpoint, map_location=self._device, weights_only=True)
        self._model.load_state_dict(saved["model"])
        for stepper, state in zip(self._steppers, saved["optimizers"], strict=True):
            stepper.load_state_dict(state)
        self.progress = Progress(**saved["done"])
