"""What is fastest for a user's own prompts on a user's own machine."""
