"""The bcmetal daemon, its API and its command line."""
