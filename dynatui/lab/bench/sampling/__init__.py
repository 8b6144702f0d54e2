"""Benchmark of lossless verifiers on sampled draft trees, at many sampling settings, reported as in the paper's tables.

In the order of the data flow: `request` (prompts, sampling settings, verifiers, shapes), `expected` (closed forms of
all tree shapes at positions of text), `best` (the shapes to decode with), `realised` (measured rates), `log` (with the
expected time of a round), `claims` (means over texts, and the paper's claims), `report`, `table`; `job` is the complete
measurement. "The paper" is the one that `decoder.verify.lossless` cites.
"""
