"""Measures lossless verifiers over drawn trees, at many settings of sampling, in the layout of the paper's tables.

    tasks      the texts that stand in for the paper's data sets
    asked      what is compared: settings of sampling, verifiers, shapes of trees
    costs      what a round of a shape is expected to take
    expected   block efficiency of all shapes at once, by closed forms, at roots of sampled text
    log        the file that keeps what was measured, from which a stopped measurement goes on
    best       which shape serves a verifier best, by what was expected
    realised   tokens a second of the best shapes, and of coupled trees beside them
    paper      what the paper reports
    report     all of it in one value
    claims     what of the paper's ranking holds here
    table      the report as text
    job        a measurement from beginning to end

"The paper" is that of `decoder.verify.lossless`.
"""
