"""A user's prompts as token ids."""

from collections.abc import Sequence

from decoder.config import RunConfig
from decoder.errors import PromptError
from decoder.models.pair import Pair
from decoder.models.text import as_chat, encode_prompt, without_surrogates


def encoded(pair: Pair, prompts: Sequence[str], config: RunConfig) -> list[list[int]]:
    """Token ids of each prompt.

    Raises:
        ConfigError: The tokenizer has no chat template, and one was asked for.
        PromptError: One does not fit; where there are several, it says which.
    """
    found = []
    for number, prompt in enumerate(prompts, 1):
        text = as_chat(pair.tokenizer, prompt) if config.chat else without_surrogates(prompt)
        try:
            ids = encode_prompt(pair.tokenizer, text, config.max_new_tokens, pair.context, special=not config.chat)
        except PromptError as error:
            several = len(prompts) > 1
            raise PromptError(f"prompt {number} of {len(prompts)}: {error}" if several else str(error)) from None
        found.append(ids)
    return found
