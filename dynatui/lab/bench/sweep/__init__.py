"""Parameter sweeps: every setting of a grid is measured once; several processes or machines measure a shard each.

Modules in the order of the data flow: `spaces` (grids of settings and their shards), `request` (everything that
identifies a sweep), `log` (log of a shard), `job` and `measuring` (measurement of one setting against plain decoding),
`report` (all logs of a folder), `heat_map` and `table` (reports as text).
"""
