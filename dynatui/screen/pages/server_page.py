"""The page with advice for a server: acceptance by position in this run, the best K, and the options of an engine."""

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from decoder.analysis.bottleneck import plain_pass_s
from decoder.analysis.round_costs import fitted
from decoder.errors import ConfigError
from decoder.events import Run
from decoder.models.names import LOOKUP, DraftKind
from dynatui.clean import clean_line
from dynatui.number_format import counted, percent, short
from dynatui.render.advice import advice_lines, curve_lines
from dynatui.screen.pages.page import Page
from dynatui.screen.protocol import Screen
from dynatui.servers.advice import advised
from dynatui.servers.costs import source
from dynatui.servers.engines import ENGINES, Engine
from dynatui.servers.profile_file import Profile
from dynatui.servers.this_run import FEWEST_ROUNDS, profile_of
from dynatui.session import Symbols
from dynatui.state.run_state import RunState

_WIDTH = 76
_STREAMS = 1, 64
_CHAIN_METHOD = "linear"
_REFRESH_S = 2.0


class ServerPage(Page):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "engine(-1)", "engine before", show=False),
        Binding("right", "engine(1)", "next engine", show=False),
        Binding("y", "copy", "copy", show=False),
    ]

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen.scene.keys, "server", self._content)
        self._of = screen
        self._engine = 0
        self._paste = ""

    def on_mount(self) -> None:
        self.set_interval(_REFRESH_S, self.show)

    def action_engine(self, step: int) -> None:
        self._engine = (self._engine + step) % len(ENGINES)
        self.show()

    def action_copy(self) -> None:
        if self._paste:
            self._of.copy_to_clipboard(self._paste)

    def _content(self) -> Text:
        engine, state = list(ENGINES.values())[self._engine], self._of.viewpoint.newest
        profile = known_profile(state, self._of.scene.keys.cap("turn('(')"))
        if isinstance(profile, str):
            body, self._paste = profile, ""
        else:
            body, self._paste = told(profile, engine, self._of.scene.symbols)
        title = f"What {engine.title} would be told\n\n"
        keys = "\n\n← → another engine, y copies the options, esc goes back"
        return Text.assemble((title, "bold"), body, (keys, "dim"))


def known_profile(state: RunState, colder: str) -> Profile | str:
    """The profile of the rounds so far, or the reason why there is none; `colder`: key that lowers the temperature."""
    run, method = state.run, _CHAIN_METHOD if _CHAIN_METHOD in state.lanes else state.watched
    if run is None:
        return "There is no run yet."
    lane = state.lanes[method]
    if lane.settings.get("temperature", run.temperature) > 0:
        return (
            "At a temperature above 0, draft and target share their noise here, which no server does: what a server "
            f"would accept is not known from this run. {colder} lowers the temperature; dynatui profile measures both "
            "rules of acceptance that servers have."
        )
    rounds = [event for event in lane.past if lane.setting("temperature", event.round) == 0]
    chains = state.chains(method)
    if len(chains.drafted) < FEWEST_ROUNDS or chains.longest == 0:
        return (
            f"{counted(len(chains.drafted), 'round')} of {clean_line(method)} at temperature 0 so far, of "
            f"{FEWEST_ROUNDS} that are needed; most of these rounds must have drafts of the same length."
        )
    plain_s = plain_pass_s(state.race.tallies.get("ar"))
    return profile_of(run, chains, fitted(rounds, plain_s), plain_s, _kind(run))


def told(profile: Profile, engine: Engine, symbols: Symbols) -> tuple[str, str]:
    """(text with acceptance, advice, speed-up by load and options; the options alone, to be copied)."""
    (draft,) = profile.drafts.values()
    lines = [
        f"{counted(round(draft.rounds), 'round')} of {counted(profile.prompts, 'text')} at temperature 0; "
        "of a tree, only first children count",
        "position  accepted  95 %",
    ]
    for place, (share, (low, high)) in enumerate(zip(draft.survival, draft.intervals, strict=True), 1):
        lines.append(f"{place:>8}  {percent(share):>8}  {percent(low)} to {percent(high)}")
    low, high = draft.length_interval or (1.0, 1.0)
    lines += [f"L({draft.longest}) = {short(draft.mean_length)} ({short(low)} to {short(high)}) tokens a round", ""]
    try:
        advice = advised(profile, source(profile), engine, _STREAMS)
    except ConfigError:
        lines.append(
            "The times of forward passes are not known yet: they need some rounds of plain decoding (method ar)."
        )
        return "\n".join(lines), ""
    lines += [*advice_lines(advice, _WIDTH), *curve_lines(advice, _WIDTH, symbols)]
    blocks = list(advice.commands.blocks())
    for title, text in blocks:
        lines += ["", f"# {clean_line(title)}", "\n".join(map(clean_line, text.split("\n")))]
    return "\n".join(lines), blocks[0][1]


def _kind(run: Run) -> DraftKind:
    if run.draft == LOOKUP:
        return "lookup"
    return run.draft_head or "model"
