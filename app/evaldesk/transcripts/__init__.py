"""Floor 1: messages and events of other tools become our turns, here and nowhere else, for files and for agents."""
