"""`evaldesk completion`: the script by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from evaldesk.wording.writer import show

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    evaldesk completion bash >> ~/.bashrc
    evaldesk completion zsh >> ~/.zshrc
    evaldesk completion fish > ~/.config/fish/completions/evaldesk.fish
    """
    from evaldesk.cli import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}; there is one for {', '.join(SHELLS)}")
    show(kind(cli, {}, "evaldesk", "_EVALDESK_COMPLETE").source())
