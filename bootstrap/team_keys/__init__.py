"""Admit the team's SSH keys (setting ``ssh_keys``), and end the logins of keys that are removed."""
