"""The neural selector of delayed trees: a small network that chooses the shape of each round's tree before the round
samples a token.

"The paper" is "Multi-path speculative decoding with delayed tree expansion"; its section 6 and appendix E describe the
selector. Modules in the order in which they build on each other:

    actions    table of shapes
    latency    expected time of a round of each shape, from a few measured passes
    features   input of the network: the models' distributions at the root
    policy     the network and its training objective
    stored     the file format of a trained selector, and the check against a pair
    chooser    a selector in a session
    labels     expected tokens of a round of each shape, from sampled tokens that all shapes share
    dataset    files of labelled roots
    collect    labelled roots from prompts
    train      training on labelled roots
    evaluate   predicted gain over the best fixed shape
"""
