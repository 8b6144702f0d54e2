"""The list of prompts: its cursor and its filter."""

from dynatui.render.prompts import chosen, listed
from dynatui.screen.pages.input import SearchScreen
from dynatui.screen.protocol import Screen


def move(screen: Screen, lines: int) -> None:
    """Moves the cursor by some prompts, within the list."""
    numbers = listed(screen.scene)
    if (number := chosen(screen.scene, numbers)) is not None:
        place = numbers.index(number) + lines
        screen.change_view(chosen_prompt=numbers[min(max(0, place), len(numbers) - 1)])


def narrow(screen: Screen) -> None:
    """Asks for words, and lists only the prompts that contain them; without words, all."""

    def run(typed: str | None) -> None:
        if typed is not None:
            screen.change_view(prompt_filter=typed.strip())

    screen.push_screen(
        SearchScreen(screen.scene.prompt_filter, "words of a prompt; enter lists those that hold them"), run
    )
