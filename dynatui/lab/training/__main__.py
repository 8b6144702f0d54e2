"""Command line of the training: ``python -m dynatui.lab.training all --data DIR``; each stage resumes where it stopped.
If the work folder lacks a tokenizer, target or distilled draft, the shipped files are used.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET
from decoder.run.loading import load_pair
from dynatui.lab import training as recipe
from dynatui.lab.training import card, corpus, loop
from dynatui.lab.training.head import TrainedHead, head_loss

TRAINED = ("target", "draft", "distil", "overlap")
"""Stages of the embedded pair that train a model, in order; the model card lists them."""
STAGES = ("tokenizer", *TRAINED, "card")
"""Stages that make the embedded pair, in order."""
ON_SAMPLES = ("samples", "overlap", "head")
"""Stages that first sample missing texts from the target; `overlap` and `head` train on these texts and the books."""
SHIPPED = {"tokenizer": EMBEDDED_TARGET, "target": EMBEDDED_TARGET, "distil": EMBEDDED_DRAFT}
"""{stage: shipped model that replaces a missing result of the stage}. The shipped draft is the result of `overlap`; if
it replaces the distilled draft, `overlap` trains it further.
"""


def main() -> None:
    options = arguments().parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    for stage in STAGES if options.stage == "all" else (options.stage,):
        run(stage, options)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dynatui.lab.training", description="Train the embedded pair.")
    parser.add_argument("stage", choices=["all", *dict.fromkeys((*STAGES, *ON_SAMPLES))])
    parser.add_argument("--data", type=Path, required=True, help="folder with books/ and books_test/")
    work, out = Path("training-work"), EMBEDDED_TARGET.parent
    parser.add_argument(
        "--work", type=Path, default=work, help="folder for checkpoints and logs (default: %(default)s)"
    )
    about_out = "folder for the trained pair (default: the folder of the embedded pair)"
    parser.add_argument("--out", type=Path, default=out, help=about_out)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--minutes", type=float, help="training time of each stage, instead of the time in the recipe")
    return parser


def run(stage: str, options: argparse.Namespace) -> None:
    """Runs a stage, which writes its result under the stage's name to the work folder; `card` writes to `--out`."""
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
        corpus.sample_texts(engine, books, recipe.SAMPLES, samples, log)
        if stage == "samples":
            return
        texts.append(corpus.sampled_texts(samples))
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
    shapes, temperature = {"target": recipe.TARGET, "draft": recipe.DRAFT}, recipe.SAMPLES.temperature
    if stage in shapes:
        model = loop.new_model(shapes[stage], recipe.VOCABULARY, recipe.SEED)
        return model.to(device), loop.text_loss, recipe.STAGES[stage]
    target = load(made("target", work), device).eval()
    match stage:
        case "distil":
            model, loss = load(work / "draft", device), loop.distillation_loss(target)
        case "overlap":
            model, loss = load(made("distil", work), device), loop.draft_overlap_loss(target, temperature)
        case _:
            model = TrainedHead(recipe.HEAD, target.config.hidden_size, target.config.vocab_size, recipe.SEED)
            model, loss = model.to(device), head_loss(target, recipe.HEAD, temperature)
    return model, loss, recipe.STAGES[stage]


def made(stage: str, work: Path) -> Path:
    """Folder of a stage's result: in the work folder if it exists there, otherwise the folder of the shipped model."""
    folder = work / stage
    return SHIPPED[stage] if stage in SHIPPED and not folder.exists() else folder


def load(folder: Path, device: torch.device) -> Any:
    model = card.load(folder, torch.float32, attn_implementation="eager")
    model.config.use_cache = False
    return model.to(device)


def publish(trained: Path, out: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """Writes a trained model for shipping: in bfloat16, with the tokenizer, in Hugging Face's layout."""
    model = card.load(trained, torch.bfloat16)
    model.config.use_cache = model.generation_config.use_cache = True
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def logger(path: Path) -> Callable[[str], None]:
    def log(line: str) -> None:
        stamped = f"{time.strftime('%H:%M:%S')} {line}"
        print(stamped, flush=True)
        with path.open("a") as file:
            file.write(stamped + "\n")

    return log


if __name__ == "__main__":
    main()
