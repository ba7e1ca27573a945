"""runtime: shared by all processes and capabilities, owned by no capability."""
