"""A folder for PYTHONPATH: its packages give way to installed ones, and serve the stand-ins where there are none."""
