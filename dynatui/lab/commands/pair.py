"""The options of a measured pair, which all measurements have."""

from dynatui.cli import options
from dynatui.cli.parameters import Group
from dynatui.lab.bench.on_pair import OnPair

PAIR = Group("pair", options.PAIR_OPTIONS, OnPair)
