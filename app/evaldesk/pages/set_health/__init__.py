"""The health of an eval set: the coverage of the agent, faults that stand in the file, and the worth of each case."""
