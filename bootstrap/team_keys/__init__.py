"""Let the team's SSH keys in (setting ``ssh_keys``), and end the logins of those that are removed."""
