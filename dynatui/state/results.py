"""What became of each prompt, for the table of prompts: only the newest run of a prompt counts."""

from collections.abc import Mapping
from dataclasses import dataclass

from decoder.events import Figures
from dynatui.state.run_state import RunState

Results = Mapping[int, "Result"]
"""By the prompt's number, from 1."""
_OPENING = 60


@dataclass(frozen=True)
class Result:
    """One prompt and the watched method's figures on it."""

    opening: str
    """How the prompt begins, cleaned."""
    method: str
    figures: Figures
    done: bool
    """Whether all methods went through to the end."""


def noted(results: Results, state: RunState) -> Results:
    """The results after a look at a run, finished or not."""
    figures = state.figures().get(state.watched)
    if state.prompt is None or figures is None or not figures.rounds:
        return results
    opening = " ".join(state.prompt_text[: 4 * _OPENING].split())[:_OPENING]
    stopped = any(end.reason in ("stopped", "error") for end in state.ends.values())
    return {**results, state.prompt.number: Result(opening, state.watched, figures, state.done and not stopped)}
