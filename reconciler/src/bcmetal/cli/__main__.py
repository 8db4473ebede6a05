"""`python -m bcmetal.cli` is `bcmetal`."""

from bcmetal.cli.main import main

main()
