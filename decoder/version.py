"""The version of the package, which recordings name."""

VERSION = "0.1.0"
