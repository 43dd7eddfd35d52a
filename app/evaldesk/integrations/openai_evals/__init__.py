"""Evals, runs and output items of OpenAI Evals."""
