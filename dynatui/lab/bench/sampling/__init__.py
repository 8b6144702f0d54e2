"""Benchmark of lossless verifiers on sampled draft trees, at many sampling settings, reported as in the paper's tables.

In the order of the data flow: `request` (prompts, sampling settings, verifiers, shapes), `expected` (block efficiency
of all tree shapes by closed forms), `best` (choice of the shapes to decode with), `realised` (measured rates), `log`
(records of all results, and times of forward passes), `claims` (means over texts, and the paper's claims), `report`,
`table`. `job` runs the complete measurement. "The paper" is Thomas et al. 2026, as cited in `decoder.verify.lossless`.
"""
