"""Floor 1: the scripted demo model, a stand-in for an LLM that needs no key. It follows rules and only looks clever."""
