"""Parameter sweeps: every setting of a grid is measured once; the settings can be split over processes or machines.

In the order of the data flow: `spaces` (grids, their shards, and the request that identifies a sweep), `measuring`
(speed of each setting relative to plain decoding) and `report` (results in all logs of a folder, and their text).
"""
