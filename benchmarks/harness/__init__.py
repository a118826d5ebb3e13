"""What all parts of the comparison share: daemons, their processes, the job program, samples and tables."""
