"""Writes the valid files of tests/fuzz/corpus, from which the fuzzers start. Entries that once were crashes stand
beside them and stay.

    python3 tests/fuzz/make_corpus.py
"""
import gzip
import io
import json
import pathlib
import struct
import zipfile
import zlib

corpus = pathlib.Path(__file__).parent / "corpus"


def put(target, name, content):
    folder = corpus / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def safetensors(header, data):
    text = header.encode()
    return struct.pack("<Q", len(text)) + text + data


put("safetensors", "one_tensor", safetensors('{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}', bytes(16)))
put("safetensors", "metadata_and_dtypes", safetensors(
    '{"__metadata__":{"format":"pt"},"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},'
    '"b":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[8,11]},"c":{"dtype":"F4","shape":[2],"data_offsets":[11,12]},'
    '"d":{"dtype":"F32","shape":[0,7],"data_offsets":[12,12]}}   ', bytes(12)))
put("safetensors", "empty", safetensors("{}", b""))
put("safetensors", "escapes",
    safetensors('{"\\u00e9\\ud83d\\ude00\\u0000":{"shape":[1],"dtype":"U8","data_offsets":[0,1]}}', b"x"))
put("safetensors", "huge_length", struct.pack("<Q", 2**64 - 8) + b"{}")


def npy(header, data, major=1):
    prefix = 10 if major == 1 else 12
    text = header.encode()
    text += b" " * (-(prefix + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([major, 0]) + struct.pack("<H" if major == 1 else "<I", len(text)) + text + data


put("npy", "f4", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", bytes(24)))
put("npy", "big_endian", npy("{'descr': '>i8', 'fortran_order': False, 'shape': (2,), }", bytes(16), 2))
put("npy", "scalar", npy("{'descr': '|u1', 'fortran_order': True, 'shape': (), }", b"x", 3))
put("npy", "objects", npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", bytes(8)))
put("npy", "huge_header", b"\x93NUMPY\x02\x00\xf0\xff\xff\xff{'descr'")


def npz(method, **arrays):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in arrays.items():
            info = zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0))
            info.compress_type = method
            with archive.open(info, "w", force_zip64=True) as member:  # as NumPy
                member.write(content)
    return out.getvalue()


grey = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 2), }", bytes(range(8)))
small = npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", bytes(8))
put("npz", "stored", npz(zipfile.ZIP_STORED, images=grey, labels=small))
put("npz", "deflated", npz(zipfile.ZIP_DEFLATED, images=grey, labels=small))
put("npz", "empty", npz(zipfile.ZIP_STORED))
put("npz", "bzip2", npz(zipfile.ZIP_BZIP2, images=grey))


def idx(code, shape, data):
    return bytes([0, 0, code, len(shape)]) + b"".join(struct.pack(">I", d) for d in shape) + data


def gz(data, level=9):
    return gzip.compress(data, level, mtime=0)


put("idx", "images", idx(8, [2, 3, 4], bytes(range(24))))
put("idx", "doubles", idx(14, [2], bytes(16)))
put("idx", "shorts_gz", gz(idx(11, [3], b"\0\1\0\2\0\3")))
put("idx", "images_gz", gz(idx(8, [30, 10, 10], bytes(i * i % 251 for i in range(3000)))))
put("idx", "stored_gz", gz(idx(8, [40], bytes(40)), 0))
put("idx", "two_members_gz", gz(idx(8, [4], b"")) + gz(b"abcd"))
put("idx", "overflow", idx(14, [2**32 - 1] * 3, bytes(8)))

put("cifar", "two_of_10", b"\0" + (b"\x03" + bytes(3072)) * 2)
put("cifar", "one_of_100", b"\1" + b"\x13\x63" + bytes(3072))
put("cifar", "truncated", b"\0" + b"\x03" + bytes(100))

put("image", "pgm", b"P5\n3 2\n255\nabcdef")
put("image", "ppm_comment", b"P6 # made by hand\n2 1\n# 1 2\n255\nabcdef")
put("image", "sixteen_bits", b"P5 1 1 65535\nab")



def png(width, height, depth, colour, rows, interlace=0):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", width, height, depth, colour, 0, 0, interlace)) +
            chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


put("image", "png_grey", png(3, 2, 8, 0, b"\0abc\1def"))
put("image", "png_rgb", png(2, 2, 8, 2, b"\2abcdef\4ghijkl"))
put("image", "png_rgba", png(1, 1, 8, 6, b"\3abcd"))

put("json", "nested", '{"a":[1,-2.5e3,{"b":"\\u00e9\\ud83d\\ude00\\n"}],"c":null,"d":true}')
put("json", "number", "-0.125E+2")
put("json", "string", '"text\\u0000"')
put("json", "deep", "[" * 100 + "]" * 100)

body = {"format": "graven checkpoint", "version": 1, "model": "m", "graph": "sum", "computation": "hash",
        "generator": "graven", "ranks": 1,
        "step": 3, "epoch": 1,
        "position": 2, "samples": 8, "loss_sum": 0.5, "seed": 1, "batch": 2, "shuffle": True, "drop_last": False,
        "lr": 0.1, "warmup": 0,
        "total_steps": 0, "best_metric": 4, "best_step": 2,
        "files": [{"name": "weights.safetensors", "bytes": 100, "sha256": "00"},
                  {"name": "optimizer.safetensors", "bytes": 8, "sha256": "00"}]}
put("manifest", "whole", json.dumps(body)[:-1])
put("manifest", "short", json.dumps({k: body[k] for k in ("format", "version", "step", "epoch", "files")})[:-1])
put("manifest", "another_version", json.dumps(dict(body, version=2))[:-1])

put("arguments", "values", "\n--steps\n12\n--lr=1e-3\n--mean\n0.1,0.2\n--no-shuffle\n--data=x\n--bench")
put("arguments", "bad", "\n--stpes\n-1\n--lr\nnan\n--mean=1,,2\nword")
put("arguments", "huge", "\n--steps\n99999999999999999999\n--lr\n1e999")

raw_images, labels = bytes(4 * 4 * 2), struct.pack("<2q", 0, 2)
put("dataset", "raw", bytes([2, len(raw_images)]) + raw_images + labels)
images = idx(8, [2, 2, 2], bytes(8))
put("dataset", "idx", bytes([0, len(images)]) + images + idx(8, [2], b"\1\2"))
put("dataset", "label_out_of_range", bytes([0, len(images)]) + images + idx(8, [2], b"\1\3"))
array = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 2), }", bytes(16))
put("dataset", "npy", bytes([1, len(array)]) + array
    + npy("{'descr': '<u2', 'fortran_order': False, 'shape': (1,), }", bytes(2)))



def token_file(magic, version, tokens, code, count=None):
    header = struct.pack("<3I", magic, version, len(tokens) if count is None else count).ljust(1024, b"\0")
    return header + struct.pack(f"<{len(tokens)}{code}", *tokens)


put("tokens", "text", b"\1" + bytes(range(1, 11)))
put("tokens", "sixteen_bits", b"\0" + token_file(20240520, 1, range(7), "H"))
put("tokens", "thirty_two_bits", b"\0" + token_file(20240801, 7, [49, 0, 3, 4], "I"))
put("tokens", "out_of_range", b"\0" + token_file(20240520, 1, [1, 2, 3, 60000], "H"))
put("tokens", "too_many", b"\0" + token_file(20240801, 7, [1, 2], "I", 2**32 - 1))

golden = pathlib.Path(__file__).parent.parent
for name in ("my_linear", "polynomial_fit"):
    put("graph", name, (golden / "golden" / name / "graph.json").read_bytes())
for name in ("valid", "schedule_parts", "program_valid", "program_constant_missing", "input_behind_the_end"):
    put("graph", name, (golden / f"errors/json/{name}.json").read_bytes())
for case in ("add_optimizer_updates/residual.after", "add_optimizer_updates/residual.before",
             "fuse_elementwise/borders.after",
             "fuse_epilogues/wider_residual.after", "fold_batch_norm/norms.before"):
    path = golden / "passes" / (case + ".json")
    if path.exists():
        put("graph", path.stem, path.read_bytes())
