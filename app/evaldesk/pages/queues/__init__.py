"""The pages of review queues: the form, the trial to read, and the results."""
