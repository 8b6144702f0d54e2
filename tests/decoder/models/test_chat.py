"""A prompt as a chat message: template and BOS token are applied once, and the run event has the fed text."""

from pathlib import Path
from typing import Any

import pytest

from decoder import RunConfig, decode, load_pair
from decoder.errors import ConfigError, PromptError
from decoder.events import Run
from decoder.prompts.prompt import AnyPrompt, ChatMessage, Prompt
from decoder.run.fitting import unfit
from tests import tiny
from tests.decoder.makers import METHODS, TinyModels

PROMPT = "The tree grows"
CHAT = RunConfig(METHODS, 12, chat=True)


def run_event(tiny_models: TinyModels, prompt: str, *, chat: bool) -> Run:
    event = tiny_models.play(tiny_models.pair("chat"), "float32", prompt, RunConfig(("ar",), 12, chat=chat)).events[0]
    assert isinstance(event, Run)
    return event


def test_the_prompt_is_fed_as_the_template_wraps_it(tiny_models: TinyModels) -> None:
    assert run_event(tiny_models, PROMPT, chat=True).prompt == "<|begin|>[user] The tree grows\n[assistant] "


def test_the_prompt_that_is_told_says_what_its_tokens_say(tiny_models: TinyModels) -> None:
    run, tokenizer = (
        run_event(tiny_models, "Äöü 🌳 {{ 1 }}", chat=True),
        tiny_models.loaded(tiny_models.pair("chat"), "float32").pair.tokenizer,
    )
    assert tokenizer.decode(run.prompt_tokens) == run.prompt
    assert tokenizer(run.prompt, add_special_tokens=False).input_ids == run.prompt_tokens


@pytest.mark.parametrize("chat", [True, False])
def test_the_special_token_that_begins_a_text_is_fed_once(tiny_models: TinyModels, *, chat: bool) -> None:
    assert run_event(tiny_models, PROMPT, chat=chat).prompt_tokens.count(0) == 1


@pytest.mark.parametrize("chat", [True, False])
def test_a_prompt_that_begins_with_the_special_token_has_it_once_and_the_run_tells_it(
    tiny_models: TinyModels, *, chat: bool
) -> None:
    template = "<|begin|>{{ messages[0].content }}"
    engine = tiny_models.loaded(tiny_models.pair("chat"), "float32")
    engine.pair.tokenizer.chat_template, before = template, engine.pair.tokenizer.chat_template
    try:
        run = next(iter(decode(engine, f"<|begin|>{PROMPT}", RunConfig(("ar",), 4, chat=chat))))
    finally:
        engine.pair.tokenizer.chat_template = before
    assert isinstance(run, Run)
    assert run.prompt_tokens.count(0) == 1
    assert run.start_words == "the prompt itself begins with <|begin|>, which is read once"
    assert run_event(tiny_models, PROMPT, chat=chat).start_words == ""


def test_without_chat_a_template_is_left_alone(tiny_models: TinyModels) -> None:
    run = run_event(tiny_models, PROMPT, chat=False)
    assert run.prompt == PROMPT
    assert run.prompt_tokens == tiny_models.prompt_tokens(tiny_models.pair("begin"), PROMPT)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_answers_as_plain_greedy_search_does(tiny_models: TinyModels, method: str) -> None:
    pair = tiny_models.pair("chat")
    fed = "[user] The tree grows\n[assistant] "  # the tokenizer adds its BOS token
    assert tiny_models.play(pair, "float32", PROMPT, CHAT).tokens(method) == tiny_models.generate(
        pair, "float32", fed, 12
    )


def test_lone_surrogates_of_a_message_are_replaced(tiny_models: TinyModels) -> None:
    assert "[user] a\N{REPLACEMENT CHARACTER}b\n" in run_event(tiny_models, "a\ud800b", chat=True).prompt


def test_the_template_counts_towards_the_context(tiny_models: TinyModels) -> None:
    room = tiny.CONTEXT - len(run_event(tiny_models, "", chat=True).prompt_tokens)
    pair, digits = tiny_models.loaded(tiny_models.pair("chat"), "float32"), "0123456789" * 20
    next(decode(pair, digits[: room - 12], CHAT))
    with pytest.raises(PromptError, match=f"{tiny.CONTEXT - 11} tokens.*give --max-new-tokens 11 or less"):
        next(decode(pair, digits[: room - 11], CHAT))


def refused(pair: Any) -> str:
    """The error message for the user."""
    with pytest.raises(ConfigError) as refusal:
        next(decode(pair, PROMPT, CHAT))
    assert refusal.value.exit_code == 2
    message = str(refusal.value)
    assert "\n" not in message
    assert message.endswith("leave --chat out, or choose models that were tuned for chat")
    return message


def test_a_tokenizer_without_a_template_is_refused(tiny_models: TinyModels) -> None:
    assert "has no chat template" in refused(tiny_models.loaded(tiny_models.pair("neox"), "float32"))


def test_the_embedded_pair_takes_no_chat() -> None:
    assert "has no chat template" in refused(load_pair(device="cpu", dtype="float32"))


TEMPLATES = {
    "a template that refuses": "{{ raise_exception('Only\\ntools may speak.') }}",
    "a template that does not parse": "{% for %}",
    "a template that asks for what is not there": "{{ messages[7].content }}",
    "a template that computes nonsense": "{{ 1 / 0 }}",
    "templates for other purposes": {"rag": tiny.TEMPLATE, "tool_use": tiny.TEMPLATE},
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_a_template_that_does_not_take_a_message_is_refused(tmp_path: Path, template: Any) -> None:
    pair = tiny.chat_pair(tmp_path, template)
    message = refused(load_pair(str(pair.target), str(pair.draft), device="cpu", dtype="float32"))
    assert "chat template fails on the prompt (" in message


def test_a_template_that_writes_nothing_leaves_an_empty_prompt(tmp_path: Path) -> None:
    pair = tiny.chat_pair(tmp_path, "{{ '' }}")
    with pytest.raises(PromptError, match="empty"):
        next(decode(load_pair(str(pair.target), str(pair.draft), device="cpu", dtype="float32"), PROMPT, CHAT))


CONVERSATION = Prompt(
    "And then?",
    (ChatMessage("system", "Be brief."), ChatMessage("user", "Tell."), ChatMessage("assistant", "Once")),
    "x",
)
WHOLE = "<|begin|>[system] Be brief.\n[user] Tell.\n[assistant] Once\n[user] And then?\n[assistant] "
BY_FLAG = {None: WHOLE, True: WHOLE, False: "And then?"}


@pytest.mark.parametrize(("chat", "fed"), BY_FLAG.items())
def test_a_conversation_is_fed_whole_in_the_template_unless_it_is_refused(
    tiny_models: TinyModels, fed: str, *, chat: bool | None
) -> None:
    pair = tiny_models.loaded(tiny_models.pair("chat"), "float32")
    run = next(decode(pair, CONVERSATION, RunConfig(("ar",), 12, chat=chat)))
    assert isinstance(run, Run)
    assert (run.prompt, run.category, run.prompt_tokens.count(0)) == (fed, "x", 1)


def test_plain_text_beside_conversations_is_fed_as_it_is(tiny_models: TinyModels) -> None:
    pair = tiny_models.loaded(tiny_models.pair("chat"), "float32")
    run = next(decode(pair, Prompt(PROMPT, category="x"), RunConfig(("ar",), 12)))
    assert isinstance(run, Run)
    assert run.prompt == PROMPT


def test_a_conversation_needs_a_template(tiny_models: TinyModels) -> None:
    pair = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    with pytest.raises(ConfigError, match=r"is a conversation, but the tokenizer has no chat template; give --no-chat"):
        next(decode(pair, CONVERSATION, RunConfig(("ar",), 12)))


def test_a_conversation_that_a_template_refuses_costs_no_other_prompt(tmp_path: Path) -> None:
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + tiny.TEMPLATE
    pair = tiny.chat_pair(tmp_path, refusing)
    loaded = load_pair(str(pair.target), str(pair.draft), device="cpu", dtype="float32").pair
    prompts: list[AnyPrompt] = [Prompt("a", ()), CONVERSATION, "b", "word " * 10_000]
    faults = dict(unfit(loaded, prompts, RunConfig(("ar",), 12)))
    assert list(faults) == [2, 4]
    assert "(no system)" in str(faults[2])
