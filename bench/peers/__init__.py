"""Other engines for the same models, each in a process of a scratch environment."""
