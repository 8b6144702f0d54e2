"""Command line of the training: ``python -m dynatui.lab.training all --data DIR``; each stage resumes where it stopped.

If the work folder lacks the tokenizer, the target or the distilled draft, later stages use the shipped files instead.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from transformers import GPTNeoXForCausalLM, PreTrainedTokenizerFast

from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET
from decoder.run.loading import load_pair
from dynatui.lab.training import card, corpus, loop, overlap, recipe
from dynatui.lab.training.head import TrainedHead, head_loss
from dynatui.lab.training.samples import sample_texts, sampled_texts

TRAINED = ("target", "draft", "distil", "overlap")
"""Stages of the embedded pair that train a model, in order; the model card lists them."""
STAGES = ("tokenizer", *TRAINED, "card")
"""Stages that make the embedded pair, in order."""
ON_SAMPLES = ("samples", "overlap", "head")
"""Stages that first sample missing texts from the target. On these texts and the books, `overlap` trains the distilled
draft further, and `head` trains a drafting head; `samples` trains nothing.
"""
SHIPPED = {"tokenizer": EMBEDDED_TARGET, "target": EMBEDDED_TARGET, "distil": EMBEDDED_DRAFT}
"""Folders of shipped models that later stages use in place of missing results, by the stage of the result. The shipped
draft is the result of `overlap`; in place of the distilled draft, it is trained further.
"""


def main() -> None:
    """Runs one stage; `all` runs the stages of the embedded pair in order."""
    options = arguments().parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    for stage in STAGES if options.stage == "all" else (options.stage,):
        run(stage, options)


def arguments() -> argparse.ArgumentParser:
    """Parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m dynatui.lab.training", description="Train the embedded pair.")
    parser.add_argument("stage", choices=["all", *dict.fromkeys((*STAGES, *ON_SAMPLES))])
    parser.add_argument("--data", type=Path, required=True, help="folder with books/ and books_test/")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("training-work"),
        help="folder for checkpoints and logs (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=EMBEDDED_TARGET.parent,
        help="folder for the trained pair (default: the folder of the embedded pair)",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--minutes", type=float, help="training time of each stage, instead of the time in the recipe")
    return parser


def run(stage: str, options: argparse.Namespace) -> None:
    """Runs one stage. The result is in the work folder under the stage's name; the card is in the folder `--out`."""
    folder = options.work / "tokenizer"
    if stage == "tokenizer":
        corpus.train_tokenizer(corpus.books(options.data / "books"), recipe.VOCABULARY).save_pretrained(folder)
        return
    tokenizer = PreTrainedTokenizerFast.from_pretrained(made("tokenizer", options.work))
    device = torch.device(options.device)
    if stage == "card":
        target, draft = options.out / EMBEDDED_TARGET.name, options.out / EMBEDDED_DRAFT.name
        publish(options.work / "target", target, tokenizer)
        publish(options.work / "overlap", draft, tokenizer)
        stage_facts = {name: json.loads((options.work / f"{name}.json").read_text()) for name in TRAINED}
        card.write(options.out / "README.md", target, draft, options.data / "books_test", stage_facts, device)
        return
    books = corpus.tokenize(corpus.books(options.data / "books"), tokenizer, options.work / "books.npy")
    texts = [books]
    if stage in ON_SAMPLES:
        samples, log = options.work / "samples", logger(options.work / "samples.log")
        engine = load_pair(str(made("target", options.work)), "lookup", device=options.device, dtype="float32")
        sample_texts(engine, books, recipe.SAMPLES, samples, log)
        if stage == "samples":
            return
        texts.append(sampled_texts(samples))
    model, loss, plan = prepare(stage, options.work, device)
    if options.minutes:
        plan = replace(plan, minutes=options.minutes)
    trainer = loop.Trainer(model, torch.compile(loss, dynamic=False), plan, device, options.work / f"{stage}.ckpt")
    progress = trainer.run(texts, logger(options.work / f"{stage}.log"))
    if isinstance(model, TrainedHead):
        model.save(options.work / stage, recipe.CONTEXT)
    else:
        model.save_pretrained(options.work / stage)
        tokenizer.save_pretrained(options.work / stage)
    facts = {**asdict(plan), **asdict(progress), "device": device.type, "threads": options.threads}
    (options.work / f"{stage}.json").write_text(json.dumps(facts, indent=1))


def prepare(stage: str, work: Path, device: torch.device) -> tuple[Any, loop.Loss, recipe.Stage]:
    """Initial model, loss and budget of a stage."""
    if stage == "target":
        model = loop.new_model(recipe.TARGET, recipe.VOCABULARY, recipe.SEED)
        return model.to(device), loop.text_loss, recipe.TARGET_STAGE
    if stage == "draft":
        model = loop.new_model(recipe.DRAFT, recipe.VOCABULARY, recipe.SEED)
        return model.to(device), loop.text_loss, recipe.DRAFT_STAGE
    target = load(made("target", work), device).eval()
    temperature = recipe.SAMPLES.temperature
    if stage == "overlap":
        return load(made("distil", work), device), overlap.draft_loss(target, temperature), recipe.OVERLAP_STAGE
    if stage == "head":
        head = TrainedHead(recipe.HEAD, target.config.hidden_size, target.config.vocab_size, recipe.SEED)
        return head.to(device), head_loss(target, recipe.HEAD, temperature), recipe.HEAD_STAGE
    return load(work / "draft", device), loop.distillation_loss(target), recipe.DISTILLATION_STAGE


def made(stage: str, work: Path) -> Path:
    """Folder of a stage's result: in the work folder if it exists there, otherwise the folder of the shipped model."""
    folder = work / stage
    return SHIPPED[stage] if stage in SHIPPED and not folder.exists() else folder


def load(folder: Path, device: torch.device) -> Any:
    """Loads a trained model for further training."""
    model: Any = GPTNeoXForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.config.use_cache = False
    return model.to(device)


def publish(trained: Path, out: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """Writes a trained model for shipping: in bfloat16, with the tokenizer, in Hugging Face's layout."""
    model: Any = GPTNeoXForCausalLM.from_pretrained(trained, dtype=torch.bfloat16)
    model.config.use_cache = model.generation_config.use_cache = True
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def logger(path: Path) -> Callable[[str], None]:
    """Logger that prints lines and appends them to `path`, each with the time of day."""

    def log(line: str) -> None:
        stamped = f"{time.strftime('%H:%M:%S')} {line}"
        print(stamped, flush=True)
        with path.open("a") as file:
            file.write(stamped + "\n")

    return log


if __name__ == "__main__":
    main()
