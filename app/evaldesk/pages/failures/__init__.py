"""The read models of failures: the room of a run, one kind of failure, and kinds over several runs."""
