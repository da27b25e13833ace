"""Decodes a PNG picture of 8-bit RGB with nothing but the standard library, checks its checksums, and compares it with
a PPM of the same picture.

  python3 read_png.py PICTURE.png PICTURE.ppm
"""
import struct
import sys
import zlib


def read_png(path):
    data = open(path, "rb").read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "signature"
    at, chunks = 8, []
    while at < len(data):
        (length,) = struct.unpack(">I", data[at:at + 4])
        body = data[at + 4:at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length:at + 12
                                        + length]) == (zlib.crc32(body),), f"checksum of {body[:4]}"
        chunks.append((body[:4], body[4:]))
        at += 12 + length
    assert [chunks[0][0], chunks[-1][0]] == [b"IHDR", b"IEND"], "order of chunks"
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (depth, colour, rest) == (8, 2, [0, 0, 0]), "8-bit RGB"
    raw = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    n = 3 * width
    assert len(raw) == height * (n + 1), "size"
    out, above = bytearray(), bytes(n)
    for y in range(height):
        kind, row = raw[y * (n + 1)], bytearray(raw[y * (n + 1) + 1:(y + 1) * (n + 1)])
        for i in range(n):
            a, b, c = row[i - 3] if i >= 3 else 0, above[i], above[i - 3] if i >= 3 else 0
            p = a + b - c
            nearest = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            row[i] = (row[i] + [0, a, b, (a + b) // 2, nearest][kind]) & 255
        out += row
        above = row
    return width, height, bytes(out)


if __name__ == "__main__":
    width, height, pixels = read_png(sys.argv[1])
    ppm = open(sys.argv[2], "rb").read()
    assert ppm == b"P6\n%d %d\n255\n" % (width, height) + pixels, "the PNG and the PPM picture differ"
    colours = len({pixels[i:i + 3] for i in range(0, len(pixels), 3)})
    mean = sum(pixels) / len(pixels)
    print(f"{width} x {height}, {colours} colours, mean {mean:.1f}")
    assert colours > width * height / 8 and 40 < mean < 215, "a picture that shows something"
