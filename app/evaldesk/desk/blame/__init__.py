"""Verbs for blame: the search by forks for the turns that decided failed trials."""
