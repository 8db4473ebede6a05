"""Pure comparisons of what a machine is with what it should be: its BMC's view, a bill of materials, a root device's hints."""
