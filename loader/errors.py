"""The one error of a checkpoint folder that can't be served."""


class CheckpointError(Exception):
    """A checkpoint that is refused: one sentence that names the file, the fault and the way out."""


class WireError(ValueError):
    """Bytes that are no sound records of the wire format: one sentence with record and byte."""
