"""The newest versions of agent frameworks, each in an environment of its own, against an endpoint of ours."""
