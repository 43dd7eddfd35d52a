"""Traces in the GenAI conventions of OpenTelemetry and in OpenInference."""
