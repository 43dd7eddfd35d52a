"""The command that takes over a folder of OpenAI Evals."""
