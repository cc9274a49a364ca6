"""Copy files to every node before a job: the launcher's side, and the formats that both sides share."""
