"""Download a prefix of a bucket in a process of its own, so that the runner's heartbeats never wait for it."""
