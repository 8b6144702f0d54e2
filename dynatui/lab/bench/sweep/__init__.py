"""Parameter sweeps: every setting of a grid is measured once, by workers that share a database.

Modules in the order of the data flow: `spaces` (grids of settings), `request` (everything that identifies a sweep),
`trials` (workers' claims on settings, in the database), `worker` (loop that measures claimed settings), `job` and
`measuring` (measurement of one setting against plain decoding), `processes` (worker processes), `report` (content of
the database), `watching` (reports while workers measure), `heat_map` and `table` (reports as text).
"""
