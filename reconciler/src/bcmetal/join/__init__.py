"""Joining: who a machine is, what it proved, and the certificate that it gets."""
