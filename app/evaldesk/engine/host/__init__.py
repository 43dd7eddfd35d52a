"""The side of the engine in the desk or command: executors, worker processes, the warm pool."""
