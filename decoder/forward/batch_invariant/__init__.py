"""What --exact runs the target with: rows whose bits do not depend on what is computed beside them."""
