"""What is on disk: paths, hashes, shards and their ranges, and atomic writing."""
