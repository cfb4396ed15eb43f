"""Plots as SVG, drawn by pure functions; colours come from the page's CSS."""
