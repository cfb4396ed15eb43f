"""A GPU behind a port, so that everything but its last call runs and is tested without one."""
