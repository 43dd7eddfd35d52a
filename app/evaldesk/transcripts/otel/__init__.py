"""Spans of traces as the turns of a conversation: GenAI conventions of OpenTelemetry, OpenInference, ADK."""
