"""Benchmark of lossless verifiers on drawn trees, at many sampling settings, in the layout of the paper's tables.

    tasks      prompts in place of the paper's data sets
    request    sampling settings, verifiers and tree shapes that are compared
    costs      expected time of a round by the shape of its tree
    expected   block efficiency of all shapes by closed forms, at roots of sampled text
    log        records, from which a stopped measurement resumes
    best       best shape of a verifier by expected block efficiency
    realised   tokens/s of the best shapes and of coupled trees
    paper      figures of the paper
    report     the whole report in one value
    claims     claims of the paper, tested here
    table      the report as text
    job        whole measurements

"The paper" is that of `decoder.verify.lossless`.
"""
