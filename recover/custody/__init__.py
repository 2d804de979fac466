"""What the stages of a recovery write into the chain of custody."""
