"""Models with states (recurrences, convolutions): layers with a state compute root-to-leaf paths without a tree mask.
"""
