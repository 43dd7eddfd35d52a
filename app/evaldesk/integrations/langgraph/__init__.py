"""Compiled graphs of LangGraph."""
