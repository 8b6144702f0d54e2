"""The training loop: one model, one objective, a budget of time, checkpoints that resume.

Knows nothing of files other than its checkpoint, and nothing of what the model is for.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from decoder.training import corpus, recipe

CHECKPOINT_S = 240.0
Loss = Callable[[nn.Module, Tensor], Tensor]


def new_model(shape: recipe.Shape, vocabulary: int, seed: int) -> GPTNeoXForCausalLM:
    """A GPT-NeoX model of this shape; projections into the residual stream start at zero."""
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
    # Eager attention keeps the score matrix, which bf16 matrix products on a CPU turn into speed at short windows.
    model: GPTNeoXForCausalLM = GPTNeoXForCausalLM._from_config(config, attn_implementation="eager")
    for layer in model.gpt_neox.layers:
        nn.init.zeros_(layer.attention.dense.weight)
        nn.init.zeros_(layer.mlp.dense_4h_to_h.weight)
    return model


def text_loss(model: nn.Module, ids: Tensor) -> Tensor:
    """Mean cross-entropy in nats a token of the next token; `ids` has shape (rows, window + 1)."""
    logits = model(ids[:, :-1]).logits.float()
    return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def distillation_loss(target: nn.Module) -> Loss:
    """Mean KL divergence in nats a token of the draft's from the target's next-token distribution."""

    def loss(draft: nn.Module, ids: Tensor) -> Tensor:
        with torch.no_grad():
            target_logprobs = target(ids[:, :-1]).logits.float().log_softmax(-1).flatten(0, 1)
        draft_logprobs = draft(ids[:, :-1]).logits.float().log_softmax(-1).flatten(0, 1)
        return functional.kl_div(draft_logprobs, target_logprobs, reduction="batchmean", log_target=True)

    return loss


def optimizers(model: nn.Module, stage: recipe.Stage) -> list[torch.optim.Optimizer]:
    """Muon for the hidden matrices, AdamW for the rest; both carry their peak rate as "peak"."""
    hidden = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    chosen = {id(p) for p in hidden}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    muon = torch.optim.Muon(
        [{"params": hidden, "peak": stage.muon_lr}],
        lr=stage.muon_lr,
        weight_decay=stage.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    adam = torch.optim.AdamW(
        [{"params": rest, "peak": stage.adam_lr}], lr=stage.adam_lr, betas=(0.9, 0.95), weight_decay=0.0
    )
    return [muon, adam]


def train(
    model: nn.Module,
    loss: Loss,
    ids: NDArray[np.uint16],
    stage: recipe.Stage,
    device: torch.device,
    checkpoint: Path,
    log: Callable[[str], None],
) -> dict[str, float]:
    """Trains `model` in place until the stage's budget is spent, resuming from `checkpoint` when it exists.

    Returns:
        What the card records: `steps`, `tokens`, `minutes`.
    """
    steppers = optimizers(model, stage)
    done = {"steps": 0, "rows": 0, "tokens": 0, "seconds": 0.0}
    if checkpoint.exists():
        saved: dict[str, Any] = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        for stepper, state in zip(steppers, saved["optimizers"], strict=True):
            stepper.load_state_dict(state)
        done = saved["done"]
    compiled = torch.compile(loss, dynamic=False)
    window = 0
    saved_at = done["seconds"]
    running = float("nan")
    while (progress := done["seconds"] / (60 * stage.minutes)) < 1.0:
        fresh = window != (window := stage.window(progress))
        started = time.perf_counter()
        rows = max(1, stage.batch_tokens // window)
        tokens = torch.from_numpy(corpus.batch(ids, done["rows"], rows, window)).to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            value = compiled(model, tokens)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for stepper in steppers:
            for group in stepper.param_groups:
                group["lr"] = group["peak"] * stage.rate(progress)
            stepper.step()
            stepper.zero_grad(set_to_none=True)
        current = value.item()
        running = current if running != running else 0.95 * running + 0.05 * current
        # The first step of a window compiles; its time says nothing about training.
        done["seconds"] += 0.0 if fresh else time.perf_counter() - started
        done["steps"] += 1
        done["rows"] += rows
        done["tokens"] += rows * window
        if done["steps"] % 20 == 0:
            rate = done["tokens"] / max(done["seconds"], 1e-9)
            log(f"{progress:6.1%} step {done['steps']} window {window} loss {running:.4f} {rate:.0f} tokens/s")
        if done["seconds"] - saved_at > CHECKPOINT_S:
            saved_at = done["seconds"]
            save(checkpoint, model, steppers, done)
    save(checkpoint, model, steppers, done)
    return {"steps": done["steps"], "tokens": done["tokens"], "minutes": done["seconds"] / 60}


def save(path: Path, model: nn.Module, steppers: list[torch.optim.Optimizer], done: dict[str, Any]) -> None:
    """Writes a checkpoint that is complete or not there at all."""
    partial = path.with_suffix(".partial")
    state = {"model": model.state_dict(), "optimizers": [s.state_dict() for s in steppers], "done": done}
    torch.save(state, partial)
    partial.replace(path)
