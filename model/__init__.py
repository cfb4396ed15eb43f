"""What a model computes: families, their programs and references, and pure rules beside."""
