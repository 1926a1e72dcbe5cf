"""A command group that takes one optional target before its subcommand: ``workflow [ACCOUNT/PREFIX] COMMAND``.

The first word that is no option (nor an option's value) decides: a command's name is that command, anything with a slash is
the target, and everything after the command's name belongs to the command. Command names have no slash, so no
word can be both.
"""

from __future__ import annotations

from typing import Any

import click


class TargetGroup(click.Group):
    """Keeps the target that was given in ``ctx.meta``; read it with ``given_target``."""

    def __init__(self, *args: Any, target: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.target_metavar = target

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [f"[{self.target_metavar}]", *super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        position = self._first_word(ctx, args)
        if position is not None and args[position] not in self.commands:
            args = self._without_target(ctx, args, position)
        return super().parse_args(ctx, args)

    def _without_target(self, ctx: click.Context, args: list[str], position: int) -> list[str]:
        """Take the target out; words that are neither a target nor a command are explained."""
        word, before, after = args[position], args[:position], args[position + 1 :]
        if ctx.resilient_parsing:  # a shell wants to know what may follow: nothing is wrong yet
            return before + after if "/" in word else args
        following = self._first_word(ctx, after)
        command = None if following is None else after[following]
        if "/" not in word:
            if command in self.commands:
                raise click.UsageError(
                    f"{word!r} is neither a command nor {self.target_metavar}: a target has a slash, such as local/default.",
                    ctx,
                )
            return args  # click says that there is no such command, and which are near
        if command is not None and command not in self.commands and "/" in command:
            raise click.UsageError(f"Two targets: {word!r} and {command!r}. Give one, then a command.", ctx)
        if command is None and not any(arg in ctx.help_option_names for arg in after):
            names = ", ".join(self.list_commands(ctx))
            raise click.UsageError(f"Missing command after {word!r}. Commands: {names}.", ctx)
        ctx.meta[_key(self)] = word
        return [arg for arg in before if arg != "--"] + after

    def _first_word(self, ctx: click.Context, args: list[str]) -> int | None:
        """Position of the first argument that is neither an option nor the value of one."""
        with_value = {
            name
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and not (param.is_flag or param.count)
            for name in (*param.opts, *param.secondary_opts)
        }
        position = 0
        while position < len(args):
            arg = args[position]
            if arg == "--":
                return position + 1 if position + 1 < len(args) else None
            if not arg.startswith("-") or arg == "-":
                return position
            position += 2 if arg in with_value else 1
        return None


def given_target(ctx: click.Context) -> str | None:
    """The target that was given to this context's group, or None."""
    command = ctx.command
    return ctx.meta.get(_key(command)) if isinstance(command, TargetGroup) else None


def _key(group: click.Command) -> str:
    return f"ai4s.jobq.target.{group.name}"
