"""Serve Session Manager: sessions that users start, and the channels of nodes' agents that carry them."""
