"""Where a round's guesses come from, which events leave to the run where all come from one draft. Knows no screen."""

from msgspec import structs

from decoder.events import Round, Run
from decoder.models.names import LOOKUP


def with_origins(run: Run | None, event: Round) -> Round:
    """The round; of a run without a draft model every guess is told to be looked up."""
    if event.origins or run is None or run.draft != LOOKUP:
        return event
    return structs.replace(event, origins=["root", *["lookup"] * (len(event.tokens) - 1)])
