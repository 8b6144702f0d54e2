"""Textual's command palette over the key map; no error if the terminal shrinks or a key closes it while it opens."""

from typing import Any, cast

from textual import events, work
from textual.app import ComposeResult
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.errors import NoWidget
from textual.geometry import Region
from textual.widget import Widget

from dynatui.keymap import Key
from dynatui.screen.pages.page import Modal, holds
from dynatui.screen.protocol import Screen

_BY_MEANING = 2.0
"""Score per letter of a match in help or synonyms: less than for adjacent letters of the title, more than for
scattered letters of the title."""


class KeyCommands(Provider):
    async def discover(self) -> Hits:
        for title, help_text, callback, _ in self.app.get_system_commands(self.screen):
            _, key_cap = self._line(title)
            yield DiscoveryHit(_with_key(Content(title), key_cap), callback, text=title, help=help_text)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, help_text, callback, _ in self.app.get_system_commands(self.screen):
            key, key_cap = self._line(title)
            score = matcher.match(title)
            if holds(f"{title} {help_text} {key.also}", query):
                score = max(score, _BY_MEANING * len(query))
            if score > 0:
                yield Hit(score, _with_key(matcher.highlight(title), key_cap), callback, text=title, help=help_text)

    def _line(self, title: str) -> tuple[Key, str]:
        commands = cast("Screen", self.app).scene.keys.commands
        return next((key, key.shown_for(action)) for name, action, key in commands if name == title)


def _with_key(title: Content, key_cap: str) -> Content:
    return title.append(Content(f"   {key_cap}").stylize("bold"))


class Commands(CommandList):
    """Textual's list, safe against a click on a row that no longer exists."""

    def on_click(self, event: events.Click) -> None:
        if event.style.meta.get("option", -1) >= self.option_count:
            event.prevent_default()


class Palette(CommandPalette, Modal[None]):
    def compose(self) -> ComposeResult:
        for widget in super().compose():
            yield Commands() if isinstance(widget, CommandList) else widget

    def get_widget_at(self, x: int, y: int) -> tuple[Widget, Region]:
        """The widget at a position; the palette itself if no widget is left there."""
        try:
            return super().get_widget_at(x, y)
        except NoWidget:
            return self, self.region

    @work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)  # noqa: SLF001 - Textual cancels this group
    async def _gather_commands(self, search_value: str) -> None:
        """Without effect after the palette is closed."""
        if self.query(CommandList):
            await cast("Any", CommandPalette._gather_commands).__wrapped__(self, search_value)  # noqa: SLF001
