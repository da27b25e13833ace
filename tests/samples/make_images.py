"""Writes a small image set in Fashion-MNIST's format: train and t10k images and labels, gzipped IDX. Ten classes that a
network can tell apart: class c has a bright band at its own height, over noise.

  python3 make_images.py FOLDER
"""
import gzip
import os
import random
import struct
import sys

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
rng = random.Random(1)
for prefix, count in (("train", 1280), ("t10k", 320)):
    images, labels = bytearray(), bytearray()
    for _ in range(count):
        c = rng.randrange(10)
        labels.append(c)
        for row in range(28):
            bright = 4 + 2 * c <= row < 6 + 2 * c
            images += bytes(rng.randrange(120, 256) if bright else rng.randrange(0, 90) for _ in range(28))
    with gzip.GzipFile(os.path.join(folder, prefix + "-images-idx3-ubyte.gz"), "wb", mtime=0) as f:
        f.write(struct.pack(">IIII", 0x803, count, 28, 28) + images)
    with gzip.GzipFile(os.path.join(folder, prefix + "-labels-idx1-ubyte.gz"), "wb", mtime=0) as f:
        f.write(struct.pack(">II", 0x801, count) + labels)
