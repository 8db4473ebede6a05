"""What machines boot from: images fetched and checked, kept on a shelf, served to one BMC each."""
