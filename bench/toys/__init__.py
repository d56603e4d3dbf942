"""Models of ``transformers`` at toy size: sizes, batches, programs and the page of results."""
