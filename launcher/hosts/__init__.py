"""Find the machines of a job: hosts files and addresses."""
