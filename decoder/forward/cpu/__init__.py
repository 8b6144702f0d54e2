"""Matrix products with packed weights: weights in the memory layout that is fastest on this CPU."""
