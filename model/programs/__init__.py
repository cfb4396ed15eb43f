"""TorchScript programs for CPU cores and GPUs; imported only where one is built."""
