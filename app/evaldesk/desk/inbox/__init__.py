"""The inbox: conversations of running agents are found, drawn, read and scored."""
