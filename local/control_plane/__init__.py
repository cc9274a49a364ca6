"""Answer AWS's API: moto, extended by the behavior that it lacks. Nothing here starts a node (see ``data_plane``)."""
