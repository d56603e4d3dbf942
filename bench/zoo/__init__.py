"""Models of ``transformers`` at toy size: their sizes, batches, programs and the page of results."""
