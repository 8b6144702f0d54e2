"""Selectors of tree shapes: labels of all shapes at roots in texts, training of the network, and evaluation."""
