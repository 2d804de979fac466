"""What is verified: the members of a folder, a zip, a commit or a bundle, read alike."""
