"""Launch instances like EC2, where moto ignores or accepts what a launch asks for."""
