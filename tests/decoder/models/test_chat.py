"""A prompt as a chat message: template and BOS token are applied once, and the run event has the fed text."""

from pathlib import Path
from typing import Any

import pytest

from decoder import RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError, PromptError
from decoder.events import Run
from decoder.prompt import AnyPrompt, ChatMessage, Prompt
from decoder.run.fitting import unfit
from tests import tiny
from tests.decoder.makers import METHODS, TinyModels

PROMPT = "The tree grows"
CHAT = RunConfig(METHODS, 12, chat=True)
CONVERSATION = Prompt(
    "And then?",
    (ChatMessage("system", "Be brief."), ChatMessage("user", "Tell."), ChatMessage("assistant", "Once")),
    "x",
)


@pytest.fixture
def engine(tiny_models: TinyModels) -> Engine:
    return tiny_models.engine("chat")


def run_event(engine: Engine, prompt: AnyPrompt, *, chat: bool | None) -> Run:
    event = next(decode(engine, prompt, RunConfig(("ar",), 12, chat=chat)))
    assert isinstance(event, Run)
    return event


def made(models: TinyModels, home: Path, template: Any) -> Engine:
    """A pair with this template."""
    return models.engine(tiny.chat_pair(home, template))


def test_the_prompt_is_fed_as_the_template_wraps_it(engine: Engine) -> None:
    assert run_event(engine, PROMPT, chat=True).prompt == "<|begin|>[user] The tree grows\n[assistant] "
    assert "[user] a\N{REPLACEMENT CHARACTER}b\n" in run_event(engine, "a\ud800b", chat=True).prompt


def test_the_prompt_that_is_told_says_what_its_tokens_say(engine: Engine) -> None:
    run, tokenizer = run_event(engine, "Äöü 🌳 {{ 1 }}", chat=True), engine.pair.tokenizer
    assert tokenizer.decode(run.prompt_tokens) == run.prompt
    assert tokenizer(run.prompt, add_special_tokens=False).input_ids == run.prompt_tokens


@pytest.mark.parametrize("chat", [True, False])
def test_the_special_token_that_begins_a_text_is_fed_once_and_a_run_tells_a_prompt_that_begins_with_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, *, chat: bool
) -> None:
    run = run_event(engine, PROMPT, chat=chat)
    assert (run.prompt_tokens.count(0), run.start_words) == (1, "")
    monkeypatch.setattr(engine.pair.tokenizer, "chat_template", "<|begin|>{{ messages[0].content }}")
    run = run_event(engine, f"<|begin|>{PROMPT}", chat=chat)
    told = "the prompt already begins with <|begin|>, which is not added again"
    assert (run.prompt_tokens.count(0), run.start_words) == (1, told)


def test_without_chat_a_template_is_left_alone(tiny_models: TinyModels, engine: Engine) -> None:
    run = run_event(engine, PROMPT, chat=False)
    assert (run.prompt, run.prompt_tokens) == (PROMPT, tiny_models.prompt_tokens("begin", PROMPT))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_answers_as_plain_greedy_search_does(tiny_models: TinyModels, method: str) -> None:
    fed = "[user] The tree grows\n[assistant] "  # the tokenizer adds its BOS token
    right = tiny_models.generate("chat", "float32", fed, 12)
    assert tiny_models.play("chat", "float32", PROMPT, CHAT).tokens(method) == right


def test_the_template_counts_towards_the_context(engine: Engine) -> None:
    room, digits = tiny.CONTEXT - len(run_event(engine, "", chat=True).prompt_tokens), "0123456789" * 20
    next(decode(engine, digits[: room - 12], CHAT))
    with pytest.raises(PromptError, match=f"{tiny.CONTEXT - 11} tokens.*give --max-new-tokens 11 or less"):
        next(decode(engine, digits[: room - 11], CHAT))


def refused(engine: Engine) -> str:
    """The error message for the user."""
    with pytest.raises(ConfigError) as refusal:
        next(decode(engine, PROMPT, CHAT))
    assert refusal.value.exit_code == 2
    message = str(refusal.value)
    assert "\n" not in message
    assert message.endswith("leave --chat out, or choose models that were tuned for chat")
    return message


def test_a_tokenizer_without_a_template_is_refused(tiny_models: TinyModels) -> None:
    for engine in (tiny_models.engine("neox"), load_pair(device="cpu", dtype="float32")):
        assert "has no chat template" in refused(engine)


TEMPLATES = {
    "a template that refuses": "{{ raise_exception('Only\\ntools may speak.') }}",
    "a template that does not parse": "{% for %}",
    "a template that asks for what is not there": "{{ messages[7].content }}",
    "a template that computes nonsense": "{{ 1 / 0 }}",
    "templates for other purposes": {"rag": tiny.TEMPLATE, "tool_use": tiny.TEMPLATE},
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_a_template_that_does_not_take_a_message_is_refused(
    tiny_models: TinyModels, tmp_path: Path, template: Any
) -> None:
    assert "chat template fails on the prompt (" in refused(made(tiny_models, tmp_path, template))


def test_a_template_that_writes_nothing_leaves_an_empty_prompt(tiny_models: TinyModels, tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="empty"):
        next(decode(made(tiny_models, tmp_path, "{{ '' }}"), PROMPT, CHAT))


WHOLE = "<|begin|>[system] Be brief.\n[user] Tell.\n[assistant] Once\n[user] And then?\n[assistant] "


@pytest.mark.parametrize(("chat", "fed"), [(None, WHOLE), (True, WHOLE), (False, "And then?")])
def test_a_conversation_is_fed_whole_in_the_template_unless_it_is_refused(
    engine: Engine, fed: str, *, chat: bool | None
) -> None:
    run = run_event(engine, CONVERSATION, chat=chat)
    assert (run.prompt, run.category, run.prompt_tokens.count(0)) == (fed, "x", 1)


def test_plain_text_beside_conversations_is_fed_as_it_is(engine: Engine) -> None:
    assert run_event(engine, Prompt(PROMPT, category="x"), chat=None).prompt == PROMPT


def test_a_conversation_needs_a_template(tiny_models: TinyModels) -> None:
    with pytest.raises(ConfigError, match=r"is a conversation, but the tokenizer has no chat template; give --no-chat"):
        run_event(tiny_models.engine("neox"), CONVERSATION, chat=None)


def test_a_conversation_that_a_template_refuses_costs_no_other_prompt(tiny_models: TinyModels, tmp_path: Path) -> None:
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + tiny.TEMPLATE
    prompts: list[AnyPrompt] = [Prompt("a", ()), CONVERSATION, "b", "word " * 10_000]
    faults = dict(unfit(made(tiny_models, tmp_path, refusing).pair, prompts, RunConfig(("ar",), 12)))
    assert list(faults) == [2, 4]
    assert "(no system)" in str(faults[2])
