"""The flags of tools.build."""

import argparse
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    """Reads the command line."""
    found = argparse.ArgumentParser(
        prog="python -m tools.build", allow_abbrev=False,
        description="Quantise a checkpoint to 8 bits, compare it with fp32 on texts, refuse what "
                    "became worse, and write a bundle that the server takes as --model.")
    found.add_argument("checkpoint", metavar="CHECKPOINT",
                       help="folder in Hugging Face layout")
    found.add_argument("-o", "--out", type=Path, required=True, metavar="BUNDLE",
                       help="folder to write; it must not be there")
    texts = found.add_mutually_exclusive_group(required=True)
    texts.add_argument("--eval", metavar="FILE.tsv",
                       help="label<TAB>text a line, UTF-8: texts that were not trained on, which "
                            "the gate judges by; 500 or more")
    texts.add_argument("--texts", metavar="FILE",
                       help="one text a line, without labels: only the agreement with fp32 is "
                            "judged, and --force is needed")
    found.add_argument("--calibrate", metavar="FILE",
                       help="texts such as the model will read, one a line, of a line with tabs "
                            "its last column: their inputs are what quantising keeps (default: the "
                            "shipped SMS messages)")
    found.add_argument("--bits", type=int, choices=(7, 8),
                       help="of the weights: 8 need a CPU with VNNI wherever the bundle is served, "
                            "7 are exact everywhere (default: 8 if this CPU has it, else 7)")
    found.add_argument("--force", action="store_true",
                       help="judge by fewer than 500 labelled texts")
    return found
