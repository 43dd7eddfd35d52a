"""Agents made of an instruction, a model and plain tools; agents declared in `evaldesk.toml`."""
