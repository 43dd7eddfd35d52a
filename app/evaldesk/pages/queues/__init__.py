"""The pages of review queues: the form, the trial to read, and what reading showed."""
