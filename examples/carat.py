"""libcarat for Python's standard library: one file, no packages.

    from carat import Engine

    with Engine() as engine:                       # the demo model; Engine("model.gguf", context=8192)
        for event in engine.chat("What is nginx?"):
            print(event["choices"][0]["delta"].get("content", ""), end="", flush=True)

Events are the chunks of OpenAI's chat completions. Leaving a generator early cancels its request.
"""

import ctypes
import ctypes.util
import json
import os


class CaratError(Exception):
    """What went wrong; `code` is that of carat.h, or None for an error that a request was answered with."""

    def __init__(self, text, code=None):
        super().__init__(text)
        self.code = code


def _load():
    path = os.environ.get("CARAT_LIBRARY") or ctypes.util.find_library("carat") or "libcarat.so.1"
    library = ctypes.CDLL(path)
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_double
    errors = ctypes.POINTER(ctypes.c_void_p)
    for name, result, arguments in (
        ("carat_version", text, []),
        ("carat_error_code", ctypes.c_int, [pointer]),
        ("carat_error_text", text, [pointer]),
        ("carat_error_free", None, [pointer]),
        ("carat_free", None, [pointer]),
        ("carat_open", pointer, [text, text, pointer, errors]),
        ("carat_close", None, [pointer]),
        ("carat_model_info", pointer, [pointer, errors]),
        ("carat_metrics", pointer, [pointer, errors]),
        ("carat_tokenize", ctypes.c_int, [pointer, text, ctypes.c_size_t, ctypes.c_int,
                                          ctypes.POINTER(ctypes.POINTER(ctypes.c_int32)),
                                          ctypes.POINTER(ctypes.c_size_t), errors]),
        ("carat_detokenize", pointer, [pointer, ctypes.POINTER(ctypes.c_int32), ctypes.c_size_t,
                                       ctypes.POINTER(ctypes.c_size_t), errors]),
        ("carat_chat", pointer, [pointer, text, pointer, pointer, errors]),
        ("carat_complete", pointer, [pointer, text, pointer, pointer, errors]),
        ("carat_next", pointer, [pointer, number]),
        ("carat_is_done", ctypes.c_int, [pointer]),
        ("carat_cancel", None, [pointer]),
        ("carat_release", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_carat = _load()
version = _carat.carat_version().decode()


def _checked(function, *arguments):
    """Calls a function whose last argument is where an error goes."""
    error = ctypes.c_void_p()
    result = function(*arguments, ctypes.byref(error))
    if error:
        failure = CaratError(_carat.carat_error_text(error).decode(), _carat.carat_error_code(error))
        _carat.carat_error_free(error)
        raise failure
    return result


def _taken(address):
    """The text at an address, which is freed."""
    text = ctypes.string_at(address).decode()
    _carat.carat_free(address)
    return text


class Engine:
    """A model that answers requests, from any number of threads."""

    def __init__(self, model=None, **options):
        self._engine = None
        self._engine = _checked(_carat.carat_open, model.encode() if model else None, json.dumps(options).encode(), None)

    def close(self):
        engine, self._engine = self._engine, None
        _carat.carat_close(engine)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def info(self):
        return json.loads(_taken(_checked(_carat.carat_model_info, self._engine)))

    def metrics(self):
        return _taken(_checked(_carat.carat_metrics, self._engine))

    def tokenize(self, text, special=False):
        data, tokens, count = text.encode(), ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        _checked(_carat.carat_tokenize, self._engine, data, len(data), int(special), ctypes.byref(tokens),
                 ctypes.byref(count))
        result = tokens[:count.value]
        _carat.carat_free(tokens)
        return result

    def detokenize(self, tokens):
        size = ctypes.c_size_t()
        address = _checked(_carat.carat_detokenize, self._engine, (ctypes.c_int32 * len(tokens))(*tokens), len(tokens),
                           ctypes.byref(size))
        text = ctypes.string_at(address, size.value).decode()
        _carat.carat_free(address)
        return text

    def chat(self, messages, **fields):
        """The events of an answer to a question, or to a list of messages, while they come."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self._events(_carat.carat_chat, {"stream": True, **fields, "messages": messages})

    def complete(self, prompt, **fields):
        """The events of a text that goes on where the prompt ends."""
        return self._events(_carat.carat_complete, {"stream": True, **fields, "prompt": prompt})

    def ask(self, messages, **fields):
        """The whole answer as text."""
        answer = next(iter(self.chat(messages, **{**fields, "stream": False})))
        return answer["choices"][0]["message"]["content"]

    def _events(self, begin, body):
        request = _checked(begin, self._engine, json.dumps(body).encode(), None, None)
        try:
            while address := _carat.carat_next(request, -1.0):
                event = json.loads(_taken(address))
                if "error" in event:
                    raise CaratError(event["error"]["message"])
                yield event
        finally:
            _carat.carat_release(request)


if __name__ == "__main__":
    import sys

    with Engine() as demo:
        for event in demo.chat(" ".join(sys.argv[1:]) or "What is nginx?"):
            for choice in event["choices"]:
                print(choice["delta"].get("content", ""), end="", flush=True)
        print()
