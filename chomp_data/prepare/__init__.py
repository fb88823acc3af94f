"""From raw text to a store: inputs, readers, tokenizers, parts, engines."""
