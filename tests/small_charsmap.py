"""Builds precompiled charsmaps, in the layout that sentencepiece writes."""

import base64


def build(replacements):
    """The base64 text of a charsmap with these replacements, none of them empty keys."""
    strings, offsets = b"", {}
    for key, value in replacements.items():
        offsets[key] = len(strings)
        strings += value.encode() + b"\0"
    units, next_base = {}, 256

    def place(prefix, at, label, keys):
        """Puts the node of a prefix into the unit at a place, its children into a fresh block."""
        nonlocal next_base
        base = next_base
        next_base += 256
        is_key = prefix in keys
        units[at] = label | is_key << 8 | (at ^ base) << 10
        if is_key:
            units[base] = 1 << 31 | keys[prefix]
        for byte in sorted({key[len(prefix)] for key in keys
                            if key.startswith(prefix) and len(key) > len(prefix)}):
            place(prefix + bytes([byte]), base ^ byte, byte, keys)

    place(b"", 0, 0, {key.encode(): at for key, at in offsets.items()})
    data = b"".join(units.get(at, 0).to_bytes(4, "little") for at in range(next_base))
    return base64.b64encode(len(data).to_bytes(4, "little") + data + strings).decode()
