"""Random trees, and device states that contain a tree."""

import random

import torch

from decoder.methods.dynatree import DynaTree
from decoder.session.cuda_graph.device_state import LEVEL, PARENT, ROW, DeviceState
from decoder.session.cuda_graph.static_shapes import DEEPEST, MOST_NODES
from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule

VOCABULARY = 7
RULE = DynaTree(window=1).rule()
CHAIN = TokenTree.of([0, *[1] * DEEPEST], list(range(-1, DEEPEST)), [0.0, *[-0.1] * DEEPEST])
"""The deepest tree."""


def some_tree(seed: int, nodes: int) -> TokenTree:
    """A random tree with distinct siblings, numbered level by level."""
    luck = random.Random(seed)
    tree = TokenTree([luck.randrange(VOCABULARY)])
    level = [0]
    while len(tree) < nodes and level:
        below = []
        for parent in level:
            tokens = luck.sample(range(VOCABULARY), luck.randint(0 if parent else 1, 3))[: nodes - len(tree)]
            below += [tree.add(parent, token, -luck.random()) for token in tokens]
        level = below
    return tree


def some_choices(tree: TokenTree, seed: int) -> list[int]:
    """A token after each node: at most nodes with children, the token of a child, so that paths are accepted."""
    luck = random.Random(seed)
    choices = []
    for node in range(len(tree)):
        children = [child for child in range(len(tree)) if tree.parents[child] == node]
        follows = children and luck.random() < 0.7
        choices.append(tree.tokens[luck.choice(children)] if follows else luck.randrange(VOCABULARY))
    return choices


def laid_out(tree: TokenTree, text: list[int], rule: TreeRule = RULE) -> DeviceState:
    """State of this text and tree."""
    state = DeviceState(torch.device("cpu"), 600)
    state.begin(text, rule)
    count = len(tree)
    state.text[len(text) - 1 :][:count] = torch.tensor(tree.tokens)
    # Leftovers of a larger tree.
    state.text[len(text) - 1 + count :] = tree.tokens[0]
    state.nodes[PARENT, 1:count] = torch.tensor(tree.parents[1:], dtype=torch.int64)
    state.nodes[LEVEL, :count] = torch.tensor(tree.depths) + 1
    state.nodes[ROW] = torch.arange(MOST_NODES) * 2
    return state
