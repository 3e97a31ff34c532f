#!/usr/bin/env python3
"""Continues a text greedily with libktx, by ctypes alone.

    embed.py model.ktxplan "Once upon a time" 20

KTX_LIBRARY=PATH names another libktx.so than the installed one.
"""
import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_float, c_int32, c_int64, c_size_t, c_void_p


class Options(ctypes.Structure):
    """ktx_options; zero means the default."""
    _fields_ = [("size", c_size_t), ("threads", c_int32), ("exact", c_int32), ("context", c_int64),
                ("sessions", c_int64), ("verify", c_int32), ("reserved", c_int32)]


ktx = ctypes.CDLL(os.environ.get("KTX_LIBRARY", "libktx.so.0"))
ktx.ktx_error_message.restype = c_char_p
ktx.ktx_version.restype = c_char_p
ktx.ktx_plan_open.argtypes = [c_char_p, POINTER(Options), POINTER(c_void_p)]
ktx.ktx_plan_close.argtypes = [c_void_p]
ktx.ktx_tokenize.argtypes = [c_void_p, c_char_p, c_size_t, POINTER(c_int32), c_size_t, POINTER(c_size_t)]
ktx.ktx_text.argtypes = [c_void_p, POINTER(c_int32), c_size_t, c_char_p, c_size_t, POINTER(c_size_t)]
ktx.ktx_is_end.argtypes = [c_void_p, c_int32]
ktx.ktx_session_new.argtypes = [c_void_p, POINTER(c_void_p)]
ktx.ktx_session_free.argtypes = [c_void_p]
ktx.ktx_session_feed.argtypes = [c_void_p, POINTER(c_int32), c_size_t]
ktx.ktx_session_logits.argtypes = [c_void_p, POINTER(POINTER(c_float)), POINTER(c_size_t)]
ktx.ktx_session_length.argtypes = [c_void_p]
ktx.ktx_session_length.restype = c_int64
ktx.ktx_session_save.argtypes = [c_void_p, c_char_p]
ktx.ktx_session_restore.argtypes = [c_void_p, c_char_p]

TOO_SMALL = 4


class KtxError(RuntimeError):
    """What a function of the library says when it fails."""


def check(status):
    if status != 0:
        raise KtxError(ktx.ktx_error_message().decode())


class Plan:
    def __init__(self, path, **options):
        self.handle = c_void_p()
        given = Options(size=ctypes.sizeof(Options), **options)
        check(ktx.ktx_plan_open(path.encode(), byref(given), byref(self.handle)))

    def close(self):
        ktx.ktx_plan_close(self.handle)
        self.handle = None

    def tokenize(self, text):
        data, count = text.encode(), c_size_t()
        ids = (c_int32 * (len(data) + 1))()
        status = ktx.ktx_tokenize(self.handle, data, len(data), ids, len(ids), byref(count))
        if status == TOO_SMALL:
            ids = (c_int32 * count.value)()
            status = ktx.ktx_tokenize(self.handle, data, len(data), ids, len(ids), byref(count))
        check(status)
        return list(ids[:count.value])

    def text(self, ids):
        array, count = (c_int32 * len(ids))(*ids), c_size_t()
        ktx.ktx_text(self.handle, array, len(ids), None, 0, byref(count))
        buffer = ctypes.create_string_buffer(count.value + 1)
        check(ktx.ktx_text(self.handle, array, len(ids), buffer, count.value, byref(count)))
        return buffer.raw[:count.value].decode()

    def is_end(self, token):
        return ktx.ktx_is_end(self.handle, token) == 1


class Session:
    def __init__(self, plan):
        self.handle = c_void_p()
        check(ktx.ktx_session_new(plan.handle, byref(self.handle)))

    def free(self):
        ktx.ktx_session_free(self.handle)
        self.handle = None

    def __len__(self):
        return ktx.ktx_session_length(self.handle)

    def feed(self, ids):
        check(ktx.ktx_session_feed(self.handle, (c_int32 * len(ids))(*ids), len(ids)))

    def logits(self):
        """A copy; numpy.ctypeslib.as_array(...) of the pointer would make none."""
        values, count = POINTER(c_float)(), c_size_t()
        check(ktx.ktx_session_logits(self.handle, byref(values), byref(count)))
        return values[:count.value]

    def save(self, path):
        check(ktx.ktx_session_save(self.handle, path.encode()))

    def restore(self, path):
        check(ktx.ktx_session_restore(self.handle, path.encode()))


def main(path, prompt, tokens):
    plan = Plan(path)
    session = Session(plan)
    session.feed(plan.tokenize(prompt))
    out = []
    for _ in range(int(tokens)):
        logits = session.logits()
        token = logits.index(max(logits))
        if plan.is_end(token):
            break
        out.append(token)
        session.feed([token])
    print(plan.text(out))
    session.free()
    plan.close()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except KtxError as error:
        sys.exit(f"embed.py: error: {error}")
