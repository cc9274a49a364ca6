"""Keep the connections of a finished job open for the next launch; see docs/decisions/018."""
