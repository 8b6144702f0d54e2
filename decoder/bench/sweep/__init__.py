"""Grids of settings, each measured as a trial in a database shared by several workers.

Data flows one way: `spaces` (grids), `request` (identity of a sweep), `trials` (claims of settings), `worker` (measures
claims), `job` and `measuring` (one setting beside ar), `processes` (several workers), `report` (content of the
database), `watching` (reports during work), `heat_map` and `table` (reports as text).
"""
