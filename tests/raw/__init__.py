"""Requests as raw bytes, one case a file: NAME.http is sent, NAME.expect says what comes of it.

Lines of an .expect file: `head METHOD TARGET keep-alive|close LENGTH|chunked|None`, `body …` and
`error STATUS CODE` are the parser's events, `wait` says that it needs more bytes; `answer STATUS
[close]` is what a live server sends, in order, to a client that half-closes behind its bytes.
"""
