"""Texts in files of lines, shared by the tools that read them: TSV, JSONL and CSV."""
