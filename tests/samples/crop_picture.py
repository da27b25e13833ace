"""Cuts N x N pixels out of the middle of a PNG picture of 8-bit RGB and writes them as PPM.

  python3 crop_picture.py PICTURE.png N CROPPED.ppm
"""
import sys

from read_png import read_png

width, height, pixels = read_png(sys.argv[1])
n = int(sys.argv[2])
x, y = (width - n) // 2, (height - n) // 2
rows = [pixels[3 * (width * row + x):3 * (width * row + x + n)] for row in range(y, y + n)]
with open(sys.argv[3], "wb") as out:
    out.write(b"P6\n%d %d\n255\n" % (n, n) + b"".join(rows))
