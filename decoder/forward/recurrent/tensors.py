"""Tensors inside the nested arguments and outputs of a module, numbered in the order of their appearance. Pure."""

from collections.abc import Callable
from typing import Any

from torch import Tensor


def replaced(nested: Any, new: Callable[[Any], Any]) -> Any:
    """A copy of nested tuples, lists and dictionaries, in which each innermost object is replaced by `new(object)`."""
    if isinstance(nested, tuple | list):
        return type(nested)(replaced(each, new) for each in nested)
    if isinstance(nested, dict):
        return {key: replaced(each, new) for key, each in nested.items()}
    return new(nested)


def tensors_of(nested: Any) -> list[Tensor]:
    """All tensors inside nested objects."""
    found: list[Tensor] = []
    replaced(nested, lambda each: found.append(each) if isinstance(each, Tensor) else None)
    return found


def with_tensors(nested: Any, new: Callable[[int, Tensor], Tensor]) -> Any:
    """A copy of nested objects in which each tensor is replaced by `new(number, tensor)`."""
    numbers = iter(range(len(tensors_of(nested))))
    return replaced(nested, lambda each: new(next(numbers), each) if isinstance(each, Tensor) else each)
