"""The help page: every key, the meaning of the panels, and every figure with its formula."""

from collections.abc import Iterable
from typing import ClassVar

from rich.console import Group as Lines
from rich.console import JustifyMethod
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType

from decoder.analysis.metrics import FIGURES, Figure
from decoder.errors import shortened
from decoder.events import Run
from dynatui.clean import clean_line
from dynatui.keymap import FIRST_MODES, Key, KeyGroup, Keymap, Mode
from dynatui.render.guide import GUIDE
from dynatui.render.status import caps
from dynatui.screen.pages.page import Page, SearchScreen, holds
from dynatui.terminal.driver import cap_of

_KEYS = 15
_TERMS = 16
_STRONG, _FAINT, _HEADING = Style(bold=True), Style(dim=True), Style(bold=True, underline=True)
_DOING: dict[Mode, str] = {
    "watch": "watching",
    "inspect": "inspecting",
    "search": "searching",
    "knobs": "all knobs are open",
}
_COMPARED = (
    "Both recordings are shown after the same decode time of their watched method, the first method of the run; "
    "pauses, the playback speed and other methods of the race do not count. So the recording with more text is the "
    "faster one. Runs are paired in the order of the files: first with first, second with second."
)

_ATTACHED = (
    "Figures describe all work of the server, for all its clients. L-bar, the mean acceptance length, is 1 + "
    "accepted / rounds; the acceptance rate is accepted / drafted; the rate of a position is the share of rounds in "
    "which the token at that position was accepted. The upper figures and the curves describe the last interval, the "
    "lower figures the session. A dash stands for a figure that the server does not report; curves have a gap where "
    "the server did not answer. What is wrong with a server, and whether it keeps the promise of --expect, is told "
    "below the first line. Drafts count as wasted when many rounds, over 10 s or more, gave hardly more than one token "
    "each on average. Tokens per round are an upper bound of the speed-up over decoding without drafts."
)


class HelpScreen(Page):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "back", show=False)]

    def __init__(self, keys: Keymap, run: Run | None = None) -> None:
        super().__init__(keys, "help", lambda: help_page(keys, self._words, run))
        self._words = ""

    def on_key(self, event: events.Key) -> None:
        """Opens the filter if the key is the main screen's key for search; Textual calls `Page.on_key` afterwards."""
        if self.keys.action_for(cap_of(event), "watch") == "search":
            event.stop()
            how = "words of the help; enter lists the lines with these words"
            self.app.push_screen(SearchScreen(self._words, how), self._find)

    def action_back(self) -> None:
        if self._words:
            self._find("")
        else:
            self.dismiss()

    def _find(self, words: str | None) -> None:
        if words is not None:
            self._words = words.strip()
            self.show()
            self.action_scroll_to(0)


def compare_help(keys: Keymap) -> Page:
    return Page(keys, "help", lambda: Lines(keys_of(keys.side_by_side), Text(f"\n{_COMPARED}")), "compare")


def server_help(keys: Keymap) -> Page:
    return Page(keys, "help", lambda: Lines(keys_of(keys.attached), Text(f"\n{_ATTACHED}")), "attach")


def help_page(keys: Keymap, words: str = "", run: Run | None = None) -> Lines:
    figures = "Every figure: formula, name in JSON, and names in other engines"
    sections = [
        *((group.title, _key_lines(group), _KEYS) for group in keys.groups),
        ("What you see", [(Text(term, _STRONG), Text(meaning)) for term, meaning in GUIDE], _TERMS),
        (figures, [(Text(figure.label, _STRONG), _meaning(figure)) for figure in FIGURES], _TERMS),
        ("This run", _run_facts(run) if run else [], _TERMS),
    ]
    count, parts = 0, list[Text | Table]()
    for title, lines, width in sections:
        matching = [(first, second) for first, second in lines if holds(f"{first.plain} {second.plain}", words)]
        if matching:
            count += len(matching)
            table = hanging(matching, width, "right" if width == _KEYS else "left")
            parts += [Text.assemble("\n", (title, _HEADING)), table]
    return Lines(_head(keys, words, count), *parts)


def _run_facts(run: Run) -> list[tuple[Text, Text]]:
    path = ", ".join(part for part in (run.path, run.path_reason) if part)
    facts = {"target": run.target, "draft": run.draft, "device": f"{run.place} {run.arithmetic}", "path": path}
    return [(Text(name, _STRONG), Text(clean_line(words))) for name, words in facts.items() if words]


def _head(keys: Keymap, words: str, count: int) -> Text:
    find = keys.cap("search")
    if words:
        hint = f"   {count or 'no'} line{'s' * (count != 1)}   esc shows all, {find} finds other words"
        return Text.assemble((f'"{shortened(clean_line(words))}"', _STRONG), (hint, _FAINT))
    closes = f"   {keys.cap('help')} or esc goes back; {find} finds words; arrow keys, j k g G scroll"
    return Text.assemble(("Keys", _STRONG), (closes, _FAINT))


def keys_of(group: KeyGroup) -> Table:
    return hanging(_key_lines(group), _KEYS, justify="right")


def _key_lines(group: KeyGroup) -> list[tuple[Text, Text]]:
    return [(Text(caps(key), _STRONG), _action(key)) for key in group.keys if key.caps]


def hanging(lines: Iterable[tuple[Text, Text]], width: int, justify: JustifyMethod = "left") -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=width, justify=justify)
    table.add_column()
    for first, second in lines:
        table.add_row(first, second)
    return table


def _meaning(figure: Figure) -> Text:
    names = f"  {figure.key}" if figure.key != figure.label else ""
    elsewhere = f"  elsewhere: {figure.elsewhere}" if figure.elsewhere else ""
    return Text.assemble(f"= {figure.formula}", (f"{names}{elsewhere}", _FAINT))


def _action(key: Key) -> Text:
    where = "" if FIRST_MODES.intersection(key.modes) else " or ".join(_DOING[mode] for mode in key.modes)
    return Text.assemble(key.help, (f"  (while {where})" if where else "", _FAINT))
