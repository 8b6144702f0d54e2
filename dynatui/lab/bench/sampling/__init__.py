"""Benchmark of lossless verifiers on sampled draft trees, at many sampling settings, reported as in the paper's tables.

In the order of the data flow: `request` (prompts, sampling settings, verifiers, shapes), `expected` (block efficiency
of all tree shapes by closed forms), `best` (choice of the shapes to decode with), `realised` (measured rates), `log`
(also has the times of passes), `claims` (means over texts, and the paper's claims), `report`, `table`. `job` is the
complete measurement. "The paper" is Thomas et al. 2026, as cited in `decoder.verify.lossless`.
"""
