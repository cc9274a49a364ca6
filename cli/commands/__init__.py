"""Define the commands of ``dlcluster``, one module each, with a ``command`` that ``cli.command_group`` loads."""
