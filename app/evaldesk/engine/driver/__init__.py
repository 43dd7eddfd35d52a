"""The side of the engine in the desk or command: worker processes, and which of them gets the next trial."""
