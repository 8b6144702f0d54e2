"""Prompts of an experiment: token ids of the beginnings of a data set's texts."""

import sys
from collections.abc import Sequence

from msgspec import structs

from decoder.errors import PromptError
from decoder.models.pair import Pair
from decoder.models.text import TOKEN_CHARACTERS, encode_prompt, without_surrogates
from dynatui.lab.bench.data_sets.prompts import TextSet
from dynatui.lab.bench.paper.records import PaperExperiment


def needed(texts: TextSet, experiments: Sequence[PaperExperiment]) -> TextSet:
    """Data set truncated to what the experiments read, so that the log does not contain entire books."""
    reading = [each for each in experiments if each.data_set == texts.name]
    count = max((each.prompts for each in reading), default=0)
    most = max((_characters(each) for each in reading), default=0)
    prompts = tuple(without_surrogates(text).strip()[:most] for text in texts.prompts[:count])
    return structs.replace(texts, prompts=prompts)


def encoded(pair: Pair, texts: TextSet, experiment: PaperExperiment) -> list[list[int]]:
    """Token ids of each prompt of an experiment."""
    return [_encoded(pair, texts, experiment, number) for number in range(experiment.prompts)]


def _encoded(pair: Pair, texts: TextSet, experiment: PaperExperiment, number: int) -> list[int]:
    text = without_surrogates(texts.prompts[number]).strip()[: _characters(experiment)]
    in_tokens = experiment.unit == "tokens"
    try:
        ids = encode_prompt(
            pair.tokenizer, text, 1, sys.maxsize if in_tokens else pair.context, special=True, limit=pair.limit
        )
    except PromptError as error:
        raise PromptError(f"prompt {number + 1} of {texts.name}: {error}") from None
    if not in_tokens:
        return ids
    if experiment.most >= pair.context:
        raise PromptError(
            f"--prompt-tokens is {experiment.most}, but the models' context is {pair.context}; "
            f"give {pair.context - 1} or less"
        )
    return ids[: experiment.most]


def _characters(experiment: PaperExperiment) -> int:
    return experiment.most * (TOKEN_CHARACTERS if experiment.unit == "tokens" else 1)
