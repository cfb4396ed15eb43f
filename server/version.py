"""The version of the server."""

VERSION = "0.1.0"
