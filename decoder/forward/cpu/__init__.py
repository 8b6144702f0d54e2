"""Matrix products with weights laid out for this CPU."""
