"""A fake engine without models, whose events are scripted and could come from a real engine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.events import End, Event, Round, Run, Start, Summary
from decoder.prompt import AnyPrompt, as_prompt
from decoder.run.config import RunConfig
from decoder.session.steering import Steering
from dynatui.session import Session
from dynatui.sources.engine import Load, Loaded, Report
from tests.dynatui import scripted_runs

WORDS = ("Once ", "upon ", "a ", "time")


def run(prompt: str = "Tell", methods: Sequence[str] = ("dynatree", "ar")) -> Run:
    return structs.replace(
        scripted_runs.run(methods, prompt),
        target="big",
        draft="small",
        dtype="float32",
        draft_dtype="float32",
        prompt_tokens=[1, 2, 3],
        max_new_tokens=8,
        methods={name: {} for name in methods},
    )


def round_(method: str, number: int, text: str) -> Round:
    """A round that accepts one of two drafted nodes and adds a bonus token."""
    return structs.replace(
        scripted_runs.plain_round(method, number, text),
        position=2 * number,
        t=0.1 * (number + 1),
        wall_s=0.2 * (number + 1),
        draft_s=0.03,
        verify_s=0.05,
        commit_s=0.01,
        draft_forwards=2,
        tokens=[7, 8, 9],
        parents=[-1, 0, 0],
        logprobs=[0.0, -0.1, -2.5],
        pieces=[" it", " was", " is"],
        accepted=[1],
        committed=[8, 10 + number],
    )


def story(
    prompt: str = "Tell", methods: Sequence[str] = ("dynatree", "ar"), words: Sequence[str] = WORDS
) -> list[Event]:
    """All events of one run, in which every method writes the same words."""
    events: list[Event] = [run(prompt, methods)]
    events += [Start(method=name, prefill_s=0.02) for name in methods]
    events += [round_(name, number, word) for number, word in enumerate(words) for name in methods]
    events += [End(method=name, reason="length", peak_bytes=1000) for name in methods]
    return [*events, Summary(methods=fold(events).figures())]


class FakeTokenizer:
    all_special_ids: Sequence[int] = ()

    def __call__(self, text: str, **_: bool) -> SimpleNamespace:
        return SimpleNamespace(input_ids=list(range(len(text.split()))))

    def decode(self, ids: Sequence[int], **_: bool) -> str:
        return " ".join("word" for _ in ids)


@dataclass(frozen=True)
class FakeReady:
    """Stands in for an engine with loaded models, into whose context every prompt fits."""

    pair: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(
            tokenizer=FakeTokenizer(),
            context=1 << 20,
            limit="a model's",
            target_name="big",
            device="cpu",
            vocabulary=1 << 20,
        )
    )

    def prepare(self) -> str:
        """Nothing is left for idle time."""
        return ""


@dataclass
class FakeEngine:
    """Stands in for `decoder.load_pair` and `decoder.decode`, and keeps their arguments."""

    words: Sequence[str] = WORDS
    before_event: Callable[[int, Steering], None] = lambda _number, _steering: None
    """Called with the number of earlier events; a test may raise an error or turn a knob there."""
    load_error: BaseException | None = None
    pairs: list[tuple[Any, ...]] = field(default_factory=list)
    runs: list[RunConfig] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    configs: list[RunConfig] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    kernels_later: list[bool] = field(default_factory=list)

    def load_pair(
        self,
        target: str | None,
        draft: str | None,
        *,
        run: RunConfig,
        report: Callable[[str], None],
        progress: Callable[[str], None] = lambda _: None,
        kernels_later: bool = False,
        **options: Any,
    ) -> "FakeReady":
        self.kernels_later.append(kernels_later)
        told = (options[name] for name in ("device", "dtype", "draft_dtype", "exact", "compiled"))
        self.pairs.append((target, draft, *told))
        self.runs.append(run)
        report("loading nothing")
        progress("all of it")
        if self.load_error:
            raise self.load_error
        return FakeReady()

    def loader(self, session: Session) -> Load:
        def load(report: Report, progress: Report) -> Loaded:
            pair = self.load_pair(**asdict(session.models), run=session.config, report=report, progress=progress)
            return Loaded(partial(self.decode, pair))

        return load

    def decode(self, pair: "FakeReady", prompt: AnyPrompt, config: RunConfig, steering: Steering) -> Iterator[Event]:
        """Events of the story; when stopped, it ends with a summary of the events so far, as the engine does."""
        assert isinstance(pair, FakeReady)
        text = as_prompt(prompt).text
        self.prompts.append(text)
        self.configs.append(config)
        self.speeds.append(steering.speed)
        told: list[Event] = []
        for number, event in enumerate(story(text, config.methods, self.words)):
            self.before_event(number, steering)
            if steering.stopped and isinstance(event, Round | End):
                break
            told.append(event)
            yield event
        else:
            return
        yield from (End(method=name, reason="stopped") for name in config.methods)
        yield Summary(methods=fold(told).figures())
