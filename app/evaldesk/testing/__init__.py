"""Evaluation inside tests: the pytest plugin and `AgentEvaluator`."""
