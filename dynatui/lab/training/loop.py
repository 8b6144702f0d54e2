"""Training loop for one model and objective, with a budget of time and resumable checkpoints.

Knows no files other than its checkpoint, and nothing of the model's purpose.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from decoder.system.device import cpu_computes_bf16
from dynatui.lab.training import corpus, recipe

CHECKPOINT_S = 240.0
LOG_STEPS = 20
Loss = Callable[[Any, Tensor], Tensor]


def new_model(shape: recipe.Shape, vocabulary: int, seed: int) -> Any:
    """A GPT-NeoX model of this shape, whose projections into the residual stream are initialised to 0."""
    torch.manual_seed(seed)
    config = GPTNeoXConfig(
        vocab_size=vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.hidden,
        max_position_embeddings=recipe.CONTEXT,
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
    """Mean cross-entropy of the next token, in nats per token; `ids` has shape (rows, window + 1)."""
    logits = model(ids[:, :-1]).logits.float()
    return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def distillation_loss(target: Any) -> Loss:
    """Loss function: mean KL divergence of the draft's next-token distribution from the target's, in nats per token."""

    def loss(draft: Any, ids: Tensor) -> Tensor:
        with torch.no_grad():
            target_logprobs = target(ids[:, :-1]).logits.float().log_softmax(-1).flatten(0, 1)
        draft_logprobs = draft(ids[:, :-1]).logits.float().log_softmax(-1).flatten(0, 1)
        return functional.kl_div(draft_logprobs, target_logprobs, reduction="batchmean", log_target=True)

    return loss


def optimizers(model: nn.Module, stage: recipe.Stage) -> list[torch.optim.Optimizer]:
    """Muon for the hidden matrices and AdamW for the other parameters. The option "peak" of each parameter group is the
    group's peak learning rate.
    """
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
    """Totals of a stage so far, which the model card lists."""

    steps: int = 0
    rows: int = 0
    """Number of training sequences."""
    tokens: int = 0
    seconds: float = 0.0
    """Training time in seconds."""

    def share(self, stage: recipe.Stage) -> float:
        """Share of the stage's budget that is spent."""
        return self.seconds / (60 * stage.minutes)


class Trainer:
    """Trains a model in place for one stage; resumes from the checkpoint if it exists."""

    def __init__(self, model: Any, loss: Loss, stage: recipe.Stage, device: torch.device, checkpoint: Path) -> None:
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
        """Trains on windows, which are taken from the texts in turn, until the budget is spent."""
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
        """Writes a checkpoint atomically."""
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
