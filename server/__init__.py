"""The server: master, fronts, dispatcher, forkserver and engines."""
