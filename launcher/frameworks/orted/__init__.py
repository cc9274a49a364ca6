"""Run mpirun's daemons (orted) under the nodes' runners, which end them with the job."""
