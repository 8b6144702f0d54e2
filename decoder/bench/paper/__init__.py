"""The DynaTree paper's experiments, repeated with any pair of models: request, measurement and report.

Data flows one way: `request` (experiments, lanes, texts; made by `experiments` from `lanes`), `job` (turns by
`contenders`, kept as `records` that `blocks` makes), `report` (means with intervals, by `summary`), then `tables`,
`figures` and `claims` beside the paper's numbers (`published`).
"""
