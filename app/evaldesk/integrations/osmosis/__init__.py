"""Agents, data sets, results, stand-ins and commands of Osmosis."""
