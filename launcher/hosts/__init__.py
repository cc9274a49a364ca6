"""Find the machines of a job: hosts files, addresses and the cluster's size."""
