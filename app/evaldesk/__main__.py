"""The command `evaldesk`, and `python -m evaldesk`. Nothing is imported before Ctrl-C can end it without a trace."""


def main() -> None:
    """Play the command line; Ctrl-C ends it also while it is imported, as `evaldesk.cli` does from then on."""
    try:
        from evaldesk.cli import main as play

        play()
    except KeyboardInterrupt:
        import sys

        sys.stderr.write("\nStopped.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
