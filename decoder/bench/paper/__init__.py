"""The DynaTree paper's experiments on any pair: what is asked, how it is measured, and what follows from it.

Data flows one way: `asked` (experiments, lanes, texts; made by `experiments` from `lanes`), `job` (turns by
`contenders`, `cuts` of them kept in `log` as `blocks`), `report` (means with intervals, by `summary`), then `tables`,
`figures` and `claims` beside what the paper says (`anchors`).
"""
