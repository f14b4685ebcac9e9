"""What both wings must agree on: nouns, states, errors, names, and the store."""
