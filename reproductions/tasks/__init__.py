"""What rows are trained and tested on: translation, the next or a hidden symbol of a text, the label of a document."""
