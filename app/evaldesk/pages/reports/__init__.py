"""Files of a run for other tools: JUnit, Markdown, annotations, rows of a table."""
