"""What the agent does on the machine: each kind of task is a function of its params and of a `Doing`, and returns its result."""
