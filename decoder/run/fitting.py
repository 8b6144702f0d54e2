"""Checks whether a pair can decode a prompt: its tokens must fit into the context and be in the target's vocabulary."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from decoder.errors import PromptError
from decoder.models.pair import Pair
from decoder.models.text import encode_prompt, fed_text, repeated_start, require_known
from decoder.prompt import AnyPrompt, as_prompt
from decoder.run.config import RunConfig


@dataclass(frozen=True)
class Fed:
    text: str
    ids: list[int]
    category: str | None
    repeated_start: str


def encoded(pair: Pair, prompt: AnyPrompt, config: RunConfig) -> Fed:
    """Raises PromptError if the prompt is empty or too long, has a token outside the target's vocabulary, or makes the
    chat template fail; ConfigError if the prompt needs a chat template but the tokenizer has none.
    """
    text, by_template = fed_text(pair.tokenizer, prompt, config.chat)
    ids = encode_prompt(
        pair.tokenizer, text, config.max_new_tokens, pair.context, special=not by_template, limit=pair.limit
    )
    require_known(pair.tokenizer, ids, pair.target_name, pair.vocabulary)
    repeated = repeated_start(pair.tokenizer, text, special=not by_template)
    return Fed(text, ids, as_prompt(prompt).category, repeated)


def unfit(pair: Pair, prompts: Sequence[AnyPrompt], config: RunConfig) -> Iterator[tuple[int, PromptError]]:
    """Yields (number from 1, error) of each prompt that cannot be decoded. Raises ConfigError as `encoded` does."""
    for number, prompt in enumerate(prompts, 1):
        try:
            encoded(pair, prompt, config)
        except PromptError as error:
            yield number, error
