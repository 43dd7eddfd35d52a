"""`python -m evaldesk` is the command line."""

from evaldesk.cli import main

main()
