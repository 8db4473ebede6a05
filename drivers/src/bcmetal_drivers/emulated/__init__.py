"""An emulated rack: BMCs on loopback that behave, and misbehave, like real ones."""
