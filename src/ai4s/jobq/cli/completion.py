"""``completion``: what a shell needs to complete our commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ai4s.jobq.cli.terminal import put

VARIABLE = "_AI4S_JOBQ_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes a shell complete commands and options.

    \b
    bash, in ~/.bashrc:                    eval "$(ai4s-jobq completion bash)"
    zsh, in ~/.zshrc:                      eval "$(ai4s-jobq completion zsh)"
    fish, in ~/.config/fish/config.fish:   ai4s-jobq completion fish | source
    """
    program = ctx.find_root()
    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    put(kind(program.command, {}, program.info_name or "ai4s-jobq", VARIABLE).source())
