"""The page of a results file: figures chosen, put into words, plots and tables, and into HTML."""
