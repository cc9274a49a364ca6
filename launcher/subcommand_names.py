"""List launch's subcommands; their code in launcher.subcommands.commands is imported only when one runs."""

SUBCOMMANDS = {
    "close": "Close the connections that are kept for the next launch.",
    "list": "List the jobs that were started on this machine, the latest last.",
    "logs": "Print a job's output: all of a detached job, or the log of one rank or node.",
    "status": "Show a job's record.",
    "stop": "End a job on all its nodes.",
}
"""Description of each subcommand by its name. ``launch -- list`` runs a command named list instead."""
