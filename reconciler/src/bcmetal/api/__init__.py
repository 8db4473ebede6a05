"""The HTTP API: parse, authenticate, authorise, decide, one store call, answer. No method touches a machine."""
