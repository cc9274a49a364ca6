"""How mpirun's daemon on another node (orted) comes to run under that node's runner, which sees to its end."""
