"""Declare a command: its shared options, its examples, and the words that it refuses."""

import functools
from collections.abc import Callable, Sequence
from typing import Concatenate, Final, ParamSpec

import click

from cli.aws.clients import aws_errors
from cli.command_group import ADVICE_BY_SUBCOMMAND
from cli.errors import UsageError
from cli.shared_options import Selection, cluster_options, selection

Parameters = ParamSpec("Parameters")
END_OF_OPTIONS: Final = "--"


class ClusterCommand(click.Command):
    """One command: its help shows examples, and it refuses words that it does not accept."""

    examples: Sequence[str] = ()
    takes_command = False
    """True if the words after ``--`` are the parameter ``command``; otherwise there must be none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            self._refuse_subcommand(args)
        split = args.index(END_OF_OPTIONS) if END_OF_OPTIONS in args and ctx.allow_interspersed_args else len(args)
        if split < len(args) and not (self.takes_command or ctx.resilient_parsing):
            raise UsageError(f"{self.name} takes no command, got {' '.join(args[split:])!r}")
        extra = super().parse_args(ctx, args[:split])
        if extra and not ctx.resilient_parsing:
            place = "; a command goes after --" if self.takes_command else "; use --cluster NAME to select a cluster"
            raise UsageError(f"unexpected argument {extra[0]!r}{place}")
        if self.takes_command:
            ctx.params["command"] = tuple(args[split + 1 :])
        return extra

    def _refuse_subcommand(self, args: Sequence[str]) -> None:
        """Raise UsageError for a word that is a subcommand elsewhere, before its options are found unknown."""
        advice = ADVICE_BY_SUBCOMMAND.get((self.name or "", args[0])) if args else None
        if advice is not None:
            raise UsageError(f"{self.name} has no subcommand {args[0]!r}: {advice}")

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), *(["[-- COMMAND ...]"] if self.takes_command else [])]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def cluster_command(
    name: str,
    *,
    examples: Sequence[str],
    takes_command: bool = False,
    interspersed: bool = True,
    cls: type[ClusterCommand] = ClusterCommand,
) -> Callable[[Callable[Concatenate[Selection, Parameters], int]], ClusterCommand]:
    """Turn a function into a command, which gets the selection first and its own parameters by name.

    Without ``interspersed``, options end at the first other word; the rest is a command with its own options.
    """

    def decorate(function: Callable[Concatenate[Selection, Parameters], int]) -> ClusterCommand:
        @functools.wraps(function)
        def invoke(*args: Parameters.args, **kwargs: Parameters.kwargs) -> int:
            chosen = selection()
            with aws_errors(chosen.region):
                return function(chosen, *args, **kwargs)

        context_settings = {"allow_extra_args": True, "allow_interspersed_args": interspersed}
        command = click.command(name, cls=cls, context_settings=context_settings)(cluster_options(invoke))
        command.examples, command.takes_command = examples, takes_command
        return command

    return decorate
