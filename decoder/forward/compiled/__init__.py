"""Passes on a CPU, each by one compiled function; the bits of a row do not depend on the pass's other rows."""
