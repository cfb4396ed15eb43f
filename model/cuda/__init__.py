"""Our kernels for NVIDIA devices, from their sources to their launch, without CUDA's toolkit."""
