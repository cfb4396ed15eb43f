"""The parts of tools.train: texts, vocabulary, network, loop, report, checkpoint."""
