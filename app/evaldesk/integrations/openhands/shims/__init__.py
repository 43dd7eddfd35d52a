"""A folder for PYTHONPATH: its packages import the installed packages, or the stand-ins if none are installed."""
