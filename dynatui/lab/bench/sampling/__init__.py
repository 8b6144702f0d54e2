"""Benchmark of lossless verifiers on sampled draft trees, at many sampling settings, reported as in the paper's tables.

In the order of the data flow: `tasks` and `request`, `expected` (closed forms of all tree shapes at positions of text),
`costs` (the expected time of a round), `best` (the shapes to decode with), `realised` (measured rates), `log`,
`averages` (means over texts), `claims`, `report`, `table`; `job` is the complete measurement. "The paper" is the one
that `decoder.verify.lossless` cites.
"""
