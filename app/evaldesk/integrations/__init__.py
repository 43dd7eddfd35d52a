"""Islands: a folder for each other tool, with all that only this tool needs. Only tables name their modules."""
