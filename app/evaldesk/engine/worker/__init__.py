"""The side of the engine in the worker process: trials and turns played and graded."""
