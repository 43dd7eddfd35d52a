"""Tools of agents: plain functions, doubles, recorded answers, time limits."""
