"""One file a family of models, and the table of them; nothing here imports torch at its top."""
