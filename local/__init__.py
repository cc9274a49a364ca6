"""The local AWS: an emulated AWS with real nodes, for tests and rehearsals. The product does not import this package.

``control_plane`` answers the calls to AWS's API: moto, extended. ``data_plane`` makes real what the API reports: a
container for each instance (``node``), routers and firewalls (``network``), file systems (``storage``).
"""
