"""The command line. Each command's module is imported when it is used, so that `bcmetal --help` is quick."""
