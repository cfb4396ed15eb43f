"""Programs as machine code that is assembled when a model is loaded: CPU cores with AVX-512."""
