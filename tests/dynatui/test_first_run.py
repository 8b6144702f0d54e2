"""A first run without options needs few target passes; tested by passes, which do not depend on the machine's load."""

from decoder.events import Summary
from decoder.run.config import RunConfig
from decoder.run.loading import load_pair
from decoder.run.race import decode
from dynatui.prompts.load import embedded
from dynatui.session import EMBEDDED_SEED, EMBEDDED_TEMPERATURE


def test_the_first_prompt_takes_few_passes_at_the_seed_that_was_chosen_for_it() -> None:
    config = RunConfig(("dynatree", "ar"), seed=EMBEDDED_SEED, temperature=EMBEDDED_TEMPERATURE)
    (summary,) = (event for event in decode(load_pair(), embedded()[0], config) if isinstance(event, Summary))
    figures = summary.methods["dynatree"]
    assert figures.committed == config.max_new_tokens
    assert figures.target_forwards is not None
    assert figures.target_forwards <= 80
    assert figures.identical_to_ar
