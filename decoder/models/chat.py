"""The text that the models read for a prompt: the prompt itself, or what the tokenizer's chat template makes of it."""

from collections.abc import Sequence
from typing import Any, cast

from decoder.errors import ConfigError, DecoderError, PromptError, first_line
from decoder.models.text import OF_MODELS, encode_prompt, without_surrogates
from decoder.models.tokenizer import TextTokenizer
from decoder.prompts.prompt import AnyPrompt, Prompt, as_prompt, templated

_TUNED = "or choose models that were tuned for chat"


def fed_text(tokenizer: TextTokenizer, prompt: AnyPrompt, chat: bool | None) -> tuple[str, bool]:  # noqa: FBT001 - a setting of the run, passed on
    """The text that the models read for a prompt, and whether the chat template wrote it; for `chat` see `templated`.

    Raises ConfigError without a chat template, and PromptError if it fails on a conversation.
    """
    if not templated(prompt, chat):
        return without_surrogates(as_prompt(prompt).text), False
    return _in_template(tokenizer, as_prompt(prompt)), True


def encode_prompts(
    tokenizer: TextTokenizer,
    prompts: Sequence[AnyPrompt],
    max_new_tokens: int,
    context: int,
    *,
    limit: str = OF_MODELS,
    chat: bool | None = None,
) -> list[list[int]]:
    """Token ids of each prompt; for `chat` see `templated`, for `limit` `encode_prompt`, also for the errors."""
    encoded = []
    for number, prompt in enumerate(prompts, 1):
        try:
            text, by_template = fed_text(tokenizer, prompt, chat)
            encoded.append(
                encode_prompt(tokenizer, text, max_new_tokens, context, special=not by_template, limit=limit)
            )
        except PromptError as error:
            several = len(prompts) > 1
            numbered = f"prompt {number} of {len(prompts)}: {error}" if several else str(error)
            raise PromptError(numbered, "prompt") from None
    return encoded


def _in_template(tokenizer: TextTokenizer, prompt: Prompt) -> str:
    conversation = prompt.earlier is not None
    remedy = "give --no-chat, which decodes the last user's turn as plain text" if conversation else "leave --chat out"
    if not tokenizer.chat_template:
        why = "the prompt is a conversation" if conversation else "--chat was asked for"
        raise ConfigError(f"{why}, but the tokenizer has no chat template; {remedy}, {_TUNED}", "chat")
    messages = [
        {"role": without_surrogates(turn.role), "content": without_surrogates(turn.content)} for turn in prompt.turns
    ]
    try:
        text = cast("Any", tokenizer).apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template is code of the checkpoint and may raise any error
        fault = f"the tokenizer's chat template fails on the prompt ({first_line(error)}); {remedy}, {_TUNED}"
        kind: type[DecoderError] = PromptError if conversation else ConfigError
        raise kind(fault, "chat") from error
    return without_surrogates(str(text))
