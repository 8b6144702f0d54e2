"""The DynaTree paper's experiments on any pair: what is asked, how it is measured, and what follows from it.

Data flows one way: `asked` (experiments, lanes, texts), `job` (turns, kept in `log` block by block), `report` (means
with intervals), then `tables`, `figures` and `claims` beside what the paper says (`anchors`).
"""
