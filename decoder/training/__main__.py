"""Command line of the training: ``python -m decoder.training all --data DIR``; each stage resumes where it stopped."""

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import GPTNeoXForCausalLM, PreTrainedTokenizerFast

from decoder.training import corpus, loop, recipe


def main() -> None:
    """Runs one stage, or all of them in order."""
    options = arguments().parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    stages = ("tokenizer", "target", "draft", "distil") if options.stage == "all" else (options.stage,)
    for stage in stages:
        run(stage, options)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m decoder.training", description="Train the embedded pair.")
    parser.add_argument("stage", choices=["all", "tokenizer", "target", "draft", "distil"])
    parser.add_argument("--data", type=Path, required=True, help="folder with books/ and books_test/")
    parser.add_argument(
        "--work", type=Path, default=Path("training-work"), help="checkpoints and logs (default: %(default)s)"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--minutes", type=float, help="budget of the stage, in place of the recipe's")
    return parser


def run(stage: str, options: argparse.Namespace) -> None:
    """Brings one stage to its end; what it makes stands in the work folder, named after the stage."""
    files = corpus.books(options.data / "books")
    folder = options.work / "tokenizer"
    if stage == "tokenizer":
        corpus.train_tokenizer(files, recipe.VOCABULARY).save_pretrained(folder)
        return
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    ids = corpus.tokenize(files, tokenizer, options.work / "books.npy")
    device = torch.device(options.device)
    model, loss, plan = prepare(stage, options.work, device)
    if options.minutes:
        plan = replace(plan, minutes=options.minutes)
    facts = loop.train(
        model, loss, ids, plan, device, options.work / f"{stage}.ckpt", logger(options.work / f"{stage}.log")
    )
    out = options.work / stage
    model.config.use_cache = True
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    (options.work / f"{stage}.json").write_text(json.dumps({**asdict(plan), **facts, "device": str(device)}, indent=1))


def prepare(stage: str, work: Path, device: torch.device) -> tuple[GPTNeoXForCausalLM, loop.Loss, recipe.Stage]:
    """The model a stage starts from, what it learns, and its plan."""
    if stage == "target":
        return (
            loop.new_model(recipe.TARGET, recipe.VOCABULARY, recipe.SEED).to(device),
            loop.text_loss,
            recipe.TARGET_STAGE,
        )
    if stage == "draft":
        return (
            loop.new_model(recipe.DRAFT, recipe.VOCABULARY, recipe.SEED).to(device),
            loop.text_loss,
            recipe.DRAFT_STAGE,
        )
    target = load(work / "target", device).eval()
    return load(work / "draft", device), loop.distillation_loss(target), recipe.DISTILLATION_STAGE


def load(folder: Path, device: torch.device) -> Any:
    model: nn.Module = GPTNeoXForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.to(device)


def logger(path: Path) -> Any:
    """Writes lines to the screen and to `path`, each with the time of day."""

    def log(line: str) -> None:
        stamped = f"{time.strftime('%H:%M:%S')} {line}"
        print(stamped, flush=True)
        with path.open("a") as file:
            file.write(stamped + "\n")

    return log


if __name__ == "__main__":
    main()
