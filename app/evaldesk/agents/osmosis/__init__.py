"""Agents of Osmosis: agent loops, workflows and graders."""
