"""Loads prompts from this package, from files and from standard input, each exactly as its author wrote it.

A prompt affects all generated tokens, so nothing is removed except one newline at the end of a file, and invalid text
is an error. Knows nothing of models, which limit the length.
"""

import json
import sys
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path

import msgspec

from decoder.errors import PromptError, shortened
from dynatui.files import opened, text_of

STANDARD_INPUT = "-"
LARGEST_FILE = 16 * 2**20
"""Maximum size of a prompt file in bytes, so that an endless device cannot fill the memory. The limit is larger than
the context of any model."""


class _Line(msgspec.Struct):
    """The keys that are read from a line of a .jsonl file; other keys are ignored."""

    prompt: str | None = None
    turns: list[str] | None = None


def embedded() -> tuple[str, ...]:
    """The prompts that come with the package, in the order of their file names."""
    folder = files("dynatui.prompts")
    texts = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".txt")), key=lambda entry: entry.name)
    return tuple(_without_newline(entry.read_text(encoding="utf-8")) for entry in texts)


def from_text(text: str) -> str:
    """A prompt given as a command-line argument; invalid UTF-8 becomes U+FFFD, which JSON can represent."""
    if not text:
        raise PromptError("the prompt is empty; give --prompt at least one character")
    return _without_surrogates(text)


def from_file(name: str) -> tuple[str, ...]:
    """The prompts in a text file, a .jsonl file or standard input (`-`); raises a PromptError if there is no prompt."""
    shown = "standard input" if name == STANDARD_INPUT else shortened(name)
    text = _read(name, shown)
    if name.endswith(".jsonl"):
        lines = enumerate(text.split("\n"), 1)
        prompts = tuple(_from_line(line, f"{shown}: line {number}") for number, line in lines if line.strip())
    else:
        prompts = tuple(prompt for prompt in (_without_newline(text),) if prompt)
    if not prompts:
        raise PromptError(f"{shown} is empty; write a prompt into it")
    return prompts


def _read(name: str, shown: str) -> str:
    if name == STANDARD_INPUT and sys.stdin is None:
        raise PromptError("standard input is closed; give a text or .jsonl file instead of -")
    too_large = "which is longer than any context; shorten the text"
    try:
        with nullcontext(sys.stdin.buffer) if name == STANDARD_INPUT else opened(Path(name)) as file:
            return text_of(file, shown, LARGEST_FILE, too_large=too_large, fault=PromptError)
    except OSError as error:
        raise PromptError(
            f"cannot read {shown}: {error.strerror}; give a text or .jsonl file, or - for standard input"
        ) from None


def _from_line(line: str, where: str) -> str:
    try:
        content = msgspec.convert(json.loads(line), _Line)
    except (ValueError, RecursionError) as error:
        raise PromptError(f'{where}: {error}; write one object per line, such as {{"prompt": "Once"}}') from None
    prompt = content.prompt if content.prompt is not None else next(iter(content.turns or ()), None)
    if not prompt:
        raise PromptError(
            f'{where}: the object holds no prompt; give a text under "prompt", or as the first entry of "turns"'
        )
    return _without_surrogates(prompt)


def _without_newline(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _without_surrogates(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
