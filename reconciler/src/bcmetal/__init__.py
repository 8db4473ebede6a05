"""The bcmetal daemon, its API and its command line."""

__version__ = "0.1.0"
