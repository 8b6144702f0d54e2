"""What the program costs; each module is a program of its own."""
