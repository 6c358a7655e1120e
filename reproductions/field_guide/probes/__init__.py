"""What trained rows of the field guide are asked besides their scores, and what needs no training: samples for each row."""
