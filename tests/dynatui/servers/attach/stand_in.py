"""A stand-in for a server of any kind: counts of rounds as a test says, and the page that shows them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dynatui.servers.attach.events import Event, Promise, PromisedChain, Reading
from dynatui.servers.attach.figures import History, lines_of
from dynatui.servers.attach.servers import KINDS, Kind
from dynatui.servers.profile_file import Chain, DraftProfile, ModelSize, Profile, StepPoint
from dynatui.state.server_state import ServerState, fold
from tests.dynatui.servers.attach.scripted_session import OPENING

RATES = (0.75, 0.6, 0.48, 0.4, 0.33)
"""Acceptance by position of the promised draft."""
OTHER = (0.5, 0.28, 0.15, 0.08, 0.04)
"""The same of another draft of the profile."""


def chains(rates: Sequence[float], rounds: float = 2000.0, effect: float = 3.0) -> tuple[PromisedChain, ...]:
    return tuple(
        PromisedChain(rates=tuple(rates[:k]), rounds=rounds, design_effect=effect, drafted=float(k))
        for k in range(1, len(rates) + 1)
    )


def promise(
    advised: tuple[tuple[int, int, int], ...] = ((1, 64, 5),), plain: tuple[StepPoint, ...] = (), draft: str = "mine"
) -> Promise:
    drafts = {"mine": chains(RATES), "other": chains(OTHER)}
    return Promise(t=0.0, profile="mine.json", draft=draft, drafts=drafts, advised=advised, plain=plain)


@dataclass
class StandIn:
    kind: Kind
    rates: Sequence[float] = RATES
    drafted: int | None = None
    """Tokens a round, fewer than positions if drafts are cut short."""
    step_s: float = 0.02
    running: float = 4.0
    waiting: float = 0.0
    cache: float = 0.2
    by_position: bool = False
    """Whether it reports drafted tokens by position."""
    rounds: int = 0
    generated: int = 0
    drafts: int = 0
    accepted_at: list[int] = field(default_factory=list)
    seconds: float = 0.0
    outputs: int = 0
    steps: int = 0

    def serve(self, rounds: int) -> None:
        """Rounds whose tokens are accepted as often as `rates` say."""
        earlier = self.accepted_at or [0] * len(self.rates)
        accepted = [round(rounds * rate) for rate in self.rates]
        self.accepted_at = [before + more for before, more in zip(earlier, accepted, strict=True)]
        self.rounds += rounds
        self.drafts += rounds * (len(self.rates) if self.drafted is None else self.drafted)
        self.generated += rounds + sum(accepted)
        self._work(rounds)

    def write(self, tokens: int) -> None:
        """Tokens without drafts."""
        self.generated += tokens
        self._work(tokens)

    def _work(self, outputs: int) -> None:
        self.seconds += outputs * self.step_s
        self.outputs += outputs
        self.steps += round(outputs / max(1.0, self.running))

    def page(self) -> str:
        kind, lines, known = self.kind, list[str](), set[str]()

        def tell(names: Sequence[str], value: float, *, type_: str = "counter", labels: str = "") -> None:
            for name in names[:1]:
                if name and (name not in known or labels):
                    known.add(name)
                    total = "_total" * (type_ == "counter" and not name.endswith(("_sum", "_count")))
                    lines.extend((f"# TYPE {name}{total} {type_}", f"{name}{total}{labels} {value:.6g}"))

        if self.rounds:
            tell(kind.drafts, self.rounds)
            tell(kind.drafted, self.drafts)
            tell(kind.accepted, sum(self.accepted_at))
            drafted_at = [self.rounds] * (self.drafts // self.rounds)
            for place, count in enumerate(self.accepted_at):
                label = f'{{{kind.position}="{place}"}}'
                tell((kind.accepted_at,), count, labels=label)
                if self.by_position or not kind.drafts:
                    tell((kind.drafted_at,), drafted_at[place] if place < len(drafted_at) else 0, labels=label)
            tell((kind.draft_tokens,), len(self.rates) + 1, type_="gauge")
            tell((kind.length,), 1 + sum(self.accepted_at) / self.rounds, type_="gauge")
        if not {*kind.generated} & known:
            tell(kind.generated, self.generated)
        tell(kind.engine_steps, self.steps)
        tell((kind.latency,), self.seconds)
        tell(kind.timed, self.generated)
        tell(kind.outputs, self.outputs)
        for name, gauge in ((kind.running, self.running), (kind.waiting, self.waiting), (kind.cache, self.cache)):
            tell((name,), gauge, type_="gauge")
        return "\n".join(lines) + "\n"


def vllm(rates: Sequence[float] = RATES, *, by_position: bool = False, drafted: int | None = None) -> StandIn:
    return StandIn(KINDS["vllm"], rates, drafted, by_position=by_position)


def watched(server: StandIn, pages: Iterator[str], promised: Promise | None = None) -> list[Event]:
    """The events of a session with one page a second."""
    history, events = History(), list[Event]([OPENING])
    for t, page in enumerate(pages):
        told = [*history.read("http://host/metrics", server.kind, lines_of(page), float(t))]
        if promised is not None and not isinstance(told[0], Reading):
            told.insert(1, promised)  # type: ignore[arg-type]  # a promise follows the server's introduction
        events += told
    return events


def state_after(server: StandIn, pages: Iterator[str], promised: Promise | None = None) -> ServerState:
    return fold(watched(server, pages, promised))


def steady(server: StandIn, polls: int = 30, rounds: int = 100) -> Iterator[str]:
    """The pages of a server that serves the same number of rounds between any two of them."""
    yield server.page()
    for _ in range(polls):
        server.serve(rounds)
        yield server.page()


def causes(state: ServerState) -> list[str]:
    return [finding.cause for finding in state.findings]


def promised_draft(rates: Sequence[float] = RATES) -> DraftProfile:
    shorter = tuple(Chain(rounds=5000, survival=tuple(rates[:k])) for k in range(1, len(rates)))
    return DraftProfile(kind="model", rounds=5000, survival=tuple(rates), shorter=shorter)


def profile(**drafts: DraftProfile) -> Profile:
    return Profile(schema=1, target="big", drafts=drafts, size=ModelSize(name="big"), prompts=10, tokens=1000)
