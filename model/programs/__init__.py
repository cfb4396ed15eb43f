"""TorchScript programs for CPU cores; imported only where a program is built."""
