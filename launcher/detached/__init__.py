"""Run a job as a systemd unit of the user, without a terminal."""
