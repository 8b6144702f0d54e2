"""The neural selector of delayed trees: a small network that chooses the shape of each round's tree before the round
samples a token.

"The paper" is "Multi-path speculative decoding with delayed tree expansion"; its section 6 and appendix E describe the
selector.
"""
