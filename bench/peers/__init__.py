"""Other engines and other servers for the same models, in processes of a scratch environment."""
