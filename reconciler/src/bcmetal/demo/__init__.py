"""An emulated site on loopback: `python -m bcmetal.demo` takes its machines through their whole life, `bcmetal serve --demo` keeps it."""
