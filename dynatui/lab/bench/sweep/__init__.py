"""Parameter sweeps: every setting of a grid is measured once; several processes or machines can share the settings.

In the order of the data flow: `spaces` (grids, their shards, and the request that identifies a sweep), `measuring` (of
each setting, relative to plain decoding), `report` (on all logs in a folder) and `table`.
"""
