"""Benchmark of lossless verifiers on sampled draft trees, at many sampling settings, reported as in the paper's tables.

In the order of the data flow: `request` (prompts, sampling settings, verifiers, shapes), `log` (records of all results,
and times of forward passes), `best` (choice of the shapes to decode with), `job` (block efficiency of all tree shapes
by closed forms, and measured rates), `claims` (means over texts, and the paper's claims), `report`, `table`. "The
paper" is Thomas et al. 2026, as cited in `decoder.verify.lossless`.
"""
