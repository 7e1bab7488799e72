"""What every other part may use: values, errors, statistics of speed, files, keys. It knows none of them."""
