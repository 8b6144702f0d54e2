"""Which prompts a pair can decode: a prompt must fit into the context, with tokens that the target knows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from decoder.errors import PromptError
from decoder.models.chat import fed_text
from decoder.models.pair import Pair
from decoder.models.text import encode_prompt, repeated_start, require_known
from decoder.prompts.prompt import AnyPrompt, as_prompt
from decoder.run.config import RunConfig


@dataclass(frozen=True)
class Fed:
    """What the models read for a prompt."""

    text: str
    ids: list[int]
    category: str | None
    """Category of the prompt in its file; None if it has none."""
    repeated_start: str
    """See `decoder.models.text.repeated_start`."""


def encoded(pair: Pair, prompt: AnyPrompt, config: RunConfig) -> Fed:
    """What the models read for a prompt.

    Raises:
        PromptError: The prompt is empty, does not fit into the context, has a token that the target does not know, or
            the chat template fails on it.
        ConfigError: The prompt needs a chat template, and the tokenizer has none.
    """
    text, by_template = fed_text(pair.tokenizer, prompt, config.chat)
    ids = encode_prompt(
        pair.tokenizer, text, config.max_new_tokens, pair.context, special=not by_template, limit=pair.limit
    )
    require_known(pair.tokenizer, ids, pair.target_name, pair.vocabulary)
    repeated = repeated_start(pair.tokenizer, text, special=not by_template)
    return Fed(text, ids, as_prompt(prompt).category, repeated)


def unfit(pair: Pair, prompts: Sequence[AnyPrompt], config: RunConfig) -> Iterator[tuple[int, PromptError]]:
    """Yields the number, from 1, of each prompt that cannot be decoded, and the reason.

    Raises:
        ConfigError: A prompt needs a chat template, and the tokenizer has none.
    """
    for number, prompt in enumerate(prompts, 1):
        try:
            encoded(pair, prompt, config)
        except PromptError as error:
            yield number, error
