"""Commands that read and write files: import, export, convert, validate."""
