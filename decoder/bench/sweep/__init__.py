"""Grids of settings, each measured as a trial in a database that several workers share.

Data flows one way: `spaces` (which settings), `asked` (what decides a measurement), `trials` (who measures which
setting), `worker` (one that measures), `job` and `measuring` (one setting beside ar), `processes` (workers at once),
`report` (what the database holds), `watching` (while they work), `heat_map` and `table` (that as text).
"""
