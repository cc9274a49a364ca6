"""The commands of ``local-aws``, which works inside a local AWS; local.__main__ parses its command line."""
