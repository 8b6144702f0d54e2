"""Parameter sweeps: every setting of a grid is measured once; several processes or machines measure a shard each.

In the order of the data flow: `spaces` (grids, their shards, and the request, which identifies a sweep), `measuring`
(one setting beside plain decoding), `report` (the logs of a folder) and `table`.
"""
