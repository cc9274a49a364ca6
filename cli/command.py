"""Declare a command: its shared options, its examples, and the words that it refuses."""

import functools
from collections.abc import Callable, Sequence
from typing import Concatenate, Final, ParamSpec

import click

from cli.aws.clients import aws_errors
from cli.command_group import ADVICE_BY_SUBCOMMAND
from cli.errors import UsageError, in_our_style
from cli.shared_options import Selection, cluster_options, selection

Parameters = ParamSpec("Parameters")
END_OF_OPTIONS: Final = "--"


class ClusterCommand(click.Command):
    """One command: its help shows examples, and it refuses words that it does not accept."""

    examples: Sequence[str] = ()
    takes_command = False
    """True if the words after ``--`` are the parameter ``command``; otherwise there must be none."""
    argument_setting = ""
    """The setting that the command's argument changes, if it is one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            self._refuse_subcommand(args)
        split = args.index(END_OF_OPTIONS) if END_OF_OPTIONS in args and ctx.allow_interspersed_args else len(args)
        if split < len(args) and not (self.takes_command or ctx.resilient_parsing):
            raise UsageError(f"{self.name} takes no command, got {' '.join(args[split:])!r}")
        try:
            extra = super().parse_args(ctx, args[:split])
        except click.NoSuchOption as error:
            self._refuse_setting(error.option_name, args[:split])
            raise
        except click.BadParameter as error:
            if not isinstance(error.param, click.Argument):
                raise
            raise UsageError(f"{in_our_style(error.format_message())}, as in: {self.examples[0]}") from error
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

    def _refuse_setting(self, option: str, args: Sequence[str]) -> None:
        """Raise UsageError for an unknown option that is a setting of the cluster."""
        if self.takes_command:
            return  # It may be an option of the command, which stands at the wrong place.
        from cli.cdk.setting_options import find_setting

        sets = any(parameter.name == "cdk_options" for parameter in self.params)
        found = find_setting(option, args, by_other_names=sets)
        if found is None or (not sets and found[0] == "cluster_name"):
            return
        setting, pair = found
        if setting == self.argument_setting:
            advice = f"it is the argument, as in: {self.examples[0]}"
        else:
            advice = f"use -c {pair}" if sets else f"{setting} is a setting, as in: cdk deploy -c {pair}"
        raise UsageError(f"no such option {option!r}: {advice}")

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
    argument_setting: str = "",
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
        command.examples, command.takes_command, command.argument_setting = examples, takes_command, argument_setting
        return command

    return decorate
