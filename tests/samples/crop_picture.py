"""Cuts WIDTH x HEIGHT pixels out of the middle of a PNG picture of 8-bit RGB and writes them as PPM.

  python3 crop_picture.py PICTURE.png WIDTH HEIGHT CROPPED.ppm
"""
import sys

from read_png import read_png

width, height, pixels = read_png(sys.argv[1])
columns, lines = int(sys.argv[2]), int(sys.argv[3])
x, y = (width - columns) // 2, (height - lines) // 2
rows = [pixels[3 * (width * row + x):3 * (width * row + x + columns)] for row in range(y, y + lines)]
with open(sys.argv[4], "wb") as out:
    out.write(b"P6\n%d %d\n255\n" % (columns, lines) + b"".join(rows))
