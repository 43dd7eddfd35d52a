"""The sample agents that ship with Evaldesk; each folder is one agent, as a user would write it."""
