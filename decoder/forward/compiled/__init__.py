"""Whole passes on a CPU by one compiled function: rows are independent of their neighbours, bit for bit."""
