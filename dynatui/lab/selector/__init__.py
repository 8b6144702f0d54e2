"""Training of selectors: roots of texts with the labels of all shapes, the network's training, and its evaluation."""
