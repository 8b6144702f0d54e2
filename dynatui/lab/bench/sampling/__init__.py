"""Benchmark of lossless verifiers on sampled draft trees, at many sampling settings, reported as in the paper's tables.

    tasks      prompts that replace the paper's data sets
    request    sampling settings, verifiers and tree shapes that are compared
    averages   means over texts, with bootstrap intervals
    costs      expected time of a round with a given tree shape
    expected   expected block efficiency (tokens per round) of all shapes by closed forms, at positions of sampled text
    log        log of the measurement, from which it resumes after an interruption
    best       best tree shape for a verifier, by expected block efficiency
    realised   measured tokens per second of the best shapes and of coupled trees
    paper      the paper's numbers
    report     report with all results, as a data structure
    claims     the paper's claims, tested on the measured values
    table      the report as plain text
    job        complete measurement

"The paper" is the one that `decoder.verify.lossless` cites.
"""
