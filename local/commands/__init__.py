"""Commands of the local AWS: ``local-aws``, which works inside one; local.__main__ parses its command line."""
