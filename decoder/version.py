"""Version of the package, which is written into recordings."""

VERSION = "0.1.0"
