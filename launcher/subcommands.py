"""Name launch's subcommands. Their code, in launcher.history.commands, is imported only when one is called."""

SUBCOMMANDS = {
    "close": "Close the connections that are kept for the next launch.",
    "list": "The jobs that were started on this machine, the latest last.",
    "logs": "What a job said: all of it where it was detached, or one rank's or node's log.",
    "status": "All that is known of a job.",
    "stop": "End a job on all its nodes.",
}
"""Description of each subcommand by its name. ``launch -- list`` runs a command named list instead."""
