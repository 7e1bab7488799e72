"""What every other package may use: values, errors, statistics of speed, files, keys. It imports none of them."""
