"""Read models of proposals of coding agents: their page, and the open ones at the object that they would change."""
