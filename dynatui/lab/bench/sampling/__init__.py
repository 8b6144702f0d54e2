"""Benchmark of lossless verifiers on sampled draft trees, at many sampling settings, reported as in the paper's tables.

In the order of the data flow: `records` (request and log), `job` (block efficiency of all tree shapes by closed forms,
and measured rates), `statistics` (means over texts, and the paper's claims), `report`, `table`. "The paper" is Thomas
et al. 2026, as cited in `decoder.verify.lossless`.
"""
