"""Tools for people: training, and later building, inspecting and packing."""
