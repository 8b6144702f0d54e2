"""The neural selector of delayed trees: which shape a round draws, by what is known before its first draw.

"The paper" is "Multi-path speculative decoding with delayed tree expansion", its section 6 and appendix E. In the order
in which they build on each other:

    actions    the shapes that can be chosen
    latency    what a round of each shape takes, from a few measured passes
    features   what is known at the root
    policy     the network, and the objective that it is trained for
    stored     a trained selector in a file, and whether it fits a pair
    chooser    a selector at work in a session
    labels     what a round of each shape would have brought, from draws that all shapes share
    dataset    labelled roots in files
    collect    labelled roots from prompts
    train      a selector from labelled roots
    evaluate   what it would bring, against the best shape of all roots
"""
